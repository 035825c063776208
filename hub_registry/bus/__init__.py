"""The registry on the bus: its service, and what brokers retain."""
