"""The skill directory of one user, and its full-text search."""
