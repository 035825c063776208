"""The hub on its bus and on the home's own broker."""
