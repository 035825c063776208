"""Mosquitto as the bus: its configuration, its process, and who may do what on it."""
