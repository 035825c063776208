"""Skills that every spoke can have. Each is found by the loader, like those that a user writes."""
