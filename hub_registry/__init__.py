"""Accounts, devices, tokens, the skill directory and presence: what the hub knows of its home."""
