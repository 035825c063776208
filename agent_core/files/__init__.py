"""Files that people edit: read again when they change."""
