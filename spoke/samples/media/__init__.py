"""Media players of the desktop."""
