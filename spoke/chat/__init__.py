"""The chat of a spoke: its own HTTP address, the hub's turns, and its offline agent."""
