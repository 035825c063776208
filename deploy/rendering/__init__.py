"""Configuration for other programs, rendered from templates."""
