"""Timers and reminders, and the times of day that people say."""
