"""The link to a broker: one that stays, over connections that come and go."""

from broker.link.link import Link, open_link
from broker.link.message import Message
from broker.link.settings import LinkSettings

__all__ = ["Link", "LinkSettings", "Message", "open_link"]
