"""A NATS server, or a cluster of them, as the bus."""
