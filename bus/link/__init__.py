"""The link to a broker: one that stays, over connections that come and go."""

from bus.link.link import Link, open_link
from bus.link.message import Message
from bus.link.settings import LinkSettings, spread

__all__ = ["Link", "LinkSettings", "Message", "open_link", "spread"]
