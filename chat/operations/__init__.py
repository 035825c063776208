"""Operations: abilities of the hub, each declared once and offered by HTTP, pages, skills and commands."""

from chat.operations.needs import ADMIN, CALL, CHANGE, LOOK, PASSWORD, TOKEN, Needs
from chat.operations.operation import Command, Field, Operation, Resource, Stream
from chat.operations.serving import Asker, Door, Operations

__all__ = [
    "ADMIN",
    "CALL",
    "CHANGE",
    "LOOK",
    "PASSWORD",
    "TOKEN",
    "Asker",
    "Command",
    "Door",
    "Field",
    "Needs",
    "Operation",
    "Operations",
    "Resource",
    "Stream",
]
