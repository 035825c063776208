"""``strawberry chat`` and ``history``."""
