"""The pages of devices: all of them, one of them, and how a new one joins."""
