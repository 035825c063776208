"""Values that watchers see: topics, and what methods answer."""
