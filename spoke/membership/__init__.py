"""Joining a hub, and staying enrolled."""
