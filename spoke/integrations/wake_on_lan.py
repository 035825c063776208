"""Computers of the home, turned on over the network (Wake-on-LAN)."""

import re
import socket
from ipaddress import IPv4Address
from typing import Annotated, Final

from pydantic import BaseModel, Field

from contracts.errors import NotFound
from strawberry_skills import Skill, skill_method

_MAC: Final = r"^\s*[0-9A-Fa-f]{2}([:-]?[0-9A-Fa-f]{2}){5}\s*$"
_EVERYONE: Final = IPv4Address("255.255.255.255")
_REPEATED: Final = 3
"""Packets that are sent: UDP loses some, and a computer that is on ignores them."""


class WakeOnLanSkill(Skill):
    """Turns computers on over the network; they must be set up for it (Wake-on-LAN)."""

    labels = {
        "de": {"WakeOnLanSkill": "Computer einschalten", "wake": "Einschalten", "list_computers": "Computer"}
        | {"computer": "Computer", "computers": "Computer", "broadcast": "Rundruf-Adresse"},
        "en": {"WakeOnLanSkill": "Wake computers", "list_computers": "Computers"},
    }

    class Settings(BaseModel):
        """The hardware address (MAC) of each computer, by the name that you call it."""

        computers: Annotated[
            dict[str, Annotated[str, Field(pattern=_MAC)]],
            Field(min_length=1, max_length=100, description='{"gaming pc": "00:11:22:aa:bb:cc"}'),
        ]
        broadcast: Annotated[IPv4Address, Field(description="Of another network.")] = _EVERYONE
        port: Annotated[int, Field(ge=1, le=65_535)] = 9

    @skill_method(read_only=True)
    def list_computers(self) -> list[str]:
        """Return the names of the computers that can be turned on."""
        return list(self.settings.computers)

    @skill_method(
        idempotent=True,
        sentences={
            "en": ["wake up [the] {computer}", "wake [the] {computer} up"],
            "de": ["weck [den|die|das] {computer} auf", "fahr [den|die|das] {computer} hoch"],
        },
        responses={"en": "I woke {result}.", "de": "{result} fährt hoch."},
    )
    def wake(self, computer: str) -> str:
        """Turn a computer on, and return its name. It takes a minute until it is up.

        Args:
            computer: Its name; case does not matter.
        """
        computers: dict[str, str] = self.settings.computers
        wanted = computer.strip().casefold()
        name = next((each for each in computers if each.casefold() == wanted), None)
        if name is None:
            known = ", ".join(computers)
            raise NotFound(
                "there is no computer {name!r}", name=computer, known=known, hint="There are: {known}."
            )
        address = bytes.fromhex(re.sub(r"[:\s-]", "", computers[name]))
        target = (str(self.settings.broadcast), self.settings.port)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            for _ in range(_REPEATED):
                sender.sendto(b"\xff" * 6 + address * 16, target)
        return name
