"""The rights that operations need."""

from dataclasses import dataclass
from typing import Final

from contracts.claims import SCOPES, Scope


@dataclass(frozen=True)
class Needs:
    """What whoever asks for an operation must have.

    Attributes:
        scopes: The token has one of these.
        devices: Whether a device may ask, too; most answers are for people alone.
        people: Whether people may ask.
        writes: Whether people with read-only access may not ask.
        admin: Whether an admin's own token or session is needed.
        confirms: Whether only a token may ask through which a person confirms calls.
        password: Whether the password of a session must have been typed in the last minutes.
    """

    scopes: tuple[Scope, ...]
    devices: bool = False
    people: bool = True
    writes: bool = False
    admin: bool = False
    confirms: bool = False
    password: bool = False

    @property
    def label(self) -> str:
        """The right as the documentation names it."""
        names = ["admin"] if self.admin else [f"`{scope}`" for scope in self.scopes]
        is_any = self.scopes == TOKEN.scopes and not self.admin
        words = "any" if is_any else " or ".join(names)
        words += "" if self.people else ", device"
        return words + (", password" if self.password else "") + (", `confirm`" if self.confirms else "")


TOKEN: Final = Needs(tuple(scope for scope in SCOPES if scope != "metrics"), devices=True)
"""Any token but one for metrics, which is for nothing else."""
LOOK: Final = Needs(("chat",))
CALL: Final = Needs(("call",))
CHANGE: Final = Needs(("call",), writes=True)
ADMIN: Final = Needs(("admin",), admin=True)
PASSWORD: Final = Needs(("admin",), admin=True, password=True)
