"""The composition root: the command line, and everything of one house in one start."""
