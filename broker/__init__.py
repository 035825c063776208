"""Brokers of our own: the embedded one, and Mosquitto as a child process or provisioned; a probe."""
