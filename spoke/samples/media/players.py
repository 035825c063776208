"""Media players on the session bus of the desktop.

Players offer MPRIS, version 2 (https://specifications.freedesktop.org/mpris-spec/latest/): a bus name below
``org.mpris.MediaPlayer2`` and the object ``/org/mpris/MediaPlayer2``.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.errors import ConfigError, NotFound
from spoke.session_bus import SessionBus, open_session_bus

_PREFIX: Final = "org.mpris.MediaPlayer2."
_OBJECT: Final = "/org/mpris/MediaPlayer2"
_ROOT: Final = "org.mpris.MediaPlayer2"
_PLAYER: Final = "org.mpris.MediaPlayer2.Player"
_PROPERTIES: Final = "org.freedesktop.DBus.Properties"


@dataclass
class Player:
    """A player that runs; its status is ``Playing``, ``Paused`` or ``Stopped``."""

    name: str
    title: str
    status: str


@dataclass
class Playing:
    """What a player plays; volume in per cent, length in seconds."""

    player: str
    status: str
    title: str = ""
    artists: list[str] = field(default_factory=list)
    album: str = ""
    length_s: float | None = None
    volume: int | None = None


class Players:
    """The players on one bus."""

    def __init__(self, bus: SessionBus) -> None:
        self._bus = bus

    async def all(self) -> list[Player]:
        """Return the players in the order of their names; one that does not answer is left out."""
        players: list[Player] = []
        for name in await self.names():
            try:
                status = (await self.playing(name)).status
                title = (await self._get_all(name, _ROOT)).get("Identity", name)
            except ConfigError:
                continue
            players.append(Player(name, title, status))
        return players

    async def names(self) -> list[str]:
        """Return the names of all players, without the prefix that they share."""
        found = await self._bus.call(
            "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "ListNames"
        )
        return sorted(name.removeprefix(_PREFIX) for name in found[0] if name.startswith(_PREFIX))

    async def choose(self, wanted: str | None) -> str:
        """Return the name of the player that is meant.

        Args:
            wanted: Its name or the beginning of it; None means the one that plays, else one that is
                paused, else any.

        Raises:
            NotFound: There is none; the hint lists those that there are.
        """
        names = await self.names()
        if not names:
            raise NotFound("no media player runs on this device", hint="Start one that offers MPRIS.")
        if wanted is not None:
            for name in names:
                if name.lower().startswith(wanted.strip().lower()):
                    return name
            known = ", ".join(names)
            raise NotFound(
                "there is no player {player!r}", player=wanted, known=known, hint="There are: {known}."
            )
        rank = {"Playing": 0, "Paused": 1}
        players = await self.all()
        return min(players, key=lambda player: rank.get(player.status, 2)).name if players else names[0]

    async def playing(self, name: str) -> Playing:
        """Return what a player plays."""
        properties = await self._get_all(name, _PLAYER)
        track = {key: value.value for key, value in (properties.get("Metadata") or {}).items()}
        length, volume = track.get("mpris:length"), properties.get("Volume")
        return Playing(
            player=name,
            status=str(properties.get("PlaybackStatus", "Stopped")),
            title=str(track.get("xesam:title", "")),
            artists=[str(artist) for artist in track.get("xesam:artist", [])],
            album=str(track.get("xesam:album", "")),
            length_s=None if length is None else length / 1_000_000,
            volume=None if volume is None else round(volume * 100),
        )

    async def tell(self, name: str, command: str) -> None:
        """Send a player one of the commands of MPRIS, for example ``Pause``."""
        await self._bus.call(_PREFIX + name, _OBJECT, _PLAYER, command, name=name)

    async def set_volume(self, name: str, percent: int) -> int:
        """Set how loud a player is, in per cent, and return it."""
        from dbus_fast import Variant

        value = Variant("d", percent / 100)
        await self._bus.call(
            _PREFIX + name, _OBJECT, _PROPERTIES, "Set", "ssv", [_PLAYER, "Volume", value], name=name
        )
        return percent

    async def _get_all(self, name: str, interface: str) -> dict[str, Any]:
        found = await self._bus.call(
            _PREFIX + name, _OBJECT, _PROPERTIES, "GetAll", "s", [interface], name=name
        )
        return {key: value.value for key, value in found[0].items()}


@asynccontextmanager
async def open_players() -> AsyncIterator[Players]:
    """Connect to the session bus and yield its players.

    Raises:
        ConfigError: There is no session bus here.
    """
    async with open_session_bus("Media players") as bus:
        yield Players(bus)
