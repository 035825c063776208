"""What a command shows a person, and what it asks."""
