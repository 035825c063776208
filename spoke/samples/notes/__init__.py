"""Notes in a folder of their own."""
