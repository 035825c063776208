"""The processes of one home, put together."""
