"""Checks of an installation, and what mends what they find."""
