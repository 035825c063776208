"""The voice of a spoke: its chat and its names for `voice`, and the local routes."""
