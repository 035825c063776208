"""Turns of the hub: from a message to an answer, and the record of conversations."""
