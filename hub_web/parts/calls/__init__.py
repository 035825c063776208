"""Forms and controls of what a method takes, and its call."""
