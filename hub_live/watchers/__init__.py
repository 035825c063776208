"""Watchers: what a person wants an eye kept on, and what may be done about it."""
