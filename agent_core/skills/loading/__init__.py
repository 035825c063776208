"""Skills found in folders, loaded and checked."""
