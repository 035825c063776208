"""Logging, and what may be written to a terminal."""
