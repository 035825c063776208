"""Skills that run: their calls, tasks, triggers and ends."""
