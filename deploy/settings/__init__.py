"""What the user set, and writing it."""
