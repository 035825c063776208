"""Operations: abilities of the hub, each declared once and offered by HTTP, pages, skills and commands."""

from chat.operations.operation import (
    ADMIN,
    CALL,
    CHANGE,
    LOOK,
    PASSWORD,
    TOKEN,
    Command,
    Field,
    Needs,
    Operation,
    Resource,
    Stream,
)
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
