"""Notifications in the page and on the phone."""
