"""Sweeps up what devices and skills that are gone have left on the broker."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from contracts import topics
from contracts.errors import Disconnected
from hub_registry.bus.retained import RetainedTopics
from hub_registry.devices.directory import Directory, Entry
from hub_registry.devices.presence import State

_log = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0
"""A skill that is registered a moment before its manifest is none that has gone."""
_MOST: Final = 10_000
"""Devices that wait to be looked at; more than there can be in a home."""

_NEVER_RETAINED: Final = (topics.EVENT, topics.RESULT, topics.CHAT_REQUEST)
"""What a device or client may publish, and must not have retained: it would fill the broker for ever."""


class Sweeper:
    """Empties retained topics of skills that no manifest lists, and of devices that were removed.

    Args:
        retired: Ids of removed devices; whoever else is unknown may be another hub's.
        states: Values that the broker may retain of one device.
        complain: Told of a device that has more, with a topic and the reason.
    """

    def __init__(
        self,
        retained: RetainedTopics,
        directory: Directory,
        *,
        retired: set[str],
        states: int,
        complain: Callable[[str, str, str], None],
    ) -> None:
        self._retained = retained
        self._directory = directory
        self._retired = retired
        self._states = states
        self._complain = complain
        self._suspects: dict[str, None] = {}
        self._cut: set[str] = set()

    def suspect(self, device: str) -> None:
        """Have it looked at what the broker retains of a device, when it is known what it should."""
        if len(self._suspects) < _MOST:
            self._suspects[device] = None

    def cut(self, device: str) -> None:
        """Take note that a device was disconnected without a will: its retained ``online`` is false."""
        self._cut.add(device)
        self.suspect(device)

    def note_retired(self, device: str) -> None:
        """Take note that a device was removed long ago; what is seen of it is emptied."""
        self._retired.add(device)

    def retire(self, device: str) -> None:
        """Take note that a device or client was removed, and empty what it left, be it later."""
        self._retired.add(device)
        self.suspect(device)

    async def run(self) -> None:
        """Look at the suspects until cancelled."""
        while True:
            await asyncio.sleep(_PAUSE_S)
            if not self._retained.reachable:
                continue
            for device in list(self._suspects):
                try:
                    if await self.sweep(device):
                        self._suspects.pop(device, None)
                except Disconnected as error:
                    _log.info("swept up when the broker is back: %s", error)
                    break

    async def sweep(self, device: str) -> bool:
        """Empty what the broker should not retain of a device.

        Returns:
            Whether it was looked at; False while it is not known which skills the device has.

        Raises:
            Disconnected: If the connection is lost.
        """
        entry = self._directory.get(device)
        if entry is None:
            self._cut.discard(device)
            if device in self._retired:
                await self.forget(device)
            return True
        if device in self._cut:
            if not entry.connected:
                await self._retained.empty([topics.STATUS.build(device=device)])
            self._cut.discard(device)
        if entry.device.revoked:
            return True
        if entry.listed is None or entry.presence.state not in (State.ONLINE, State.OFFLINE):
            return False
        own = (topics.SKILL.filter(device=device), topics.STATE.filter(device=device))
        emptied, left = await self._retained.clear(*own, spare=lambda topic: _is_listed(entry, topic))
        _tell(f"of skills that {device} no longer has", emptied, left)
        return True

    async def forget(self, principal: str) -> set[str]:
        """Empty all that a device or client may have left; give what could not be emptied.

        Raises:
            Disconnected: If the connection is lost.
        """
        emptied, left = await self._retained.clear(*topics.branches_of(principal))
        _tell(f"of {principal}", emptied, left)
        return left

    async def check(self) -> None:
        """Look through what the broker retains besides registrations, for what nobody told of."""
        try:
            filters = (row.filter() for row in (topics.STATE, *_NEVER_RETAINED))
            found = await self._retained.gather(*filters)
            states: defaultdict[str, list[str]] = defaultdict(list)
            strays: defaultdict[str, list[str]] = defaultdict(list)
            for topic in sorted(found):
                values = topics.STATE.place(topic)
                if values is not None:
                    states[values["device"]].append(topic)
                elif (sender := self._sender(topic)) is not None:
                    strays[sender].append(topic)
            for device, own in states.items():
                await self._check_states(device, own)
            for sender, own in strays.items():
                self._complain(sender, own[0], f"it had {len(own)} messages retained that only pass by")
                await self._retained.empty(own)
        except Disconnected as error:
            _log.info("what the broker retains is looked through later: %s", error)

    def _sender(self, topic: str) -> str | None:
        """Give whose a message is that only passes by; None where it may be of somebody else's device."""
        for row in _NEVER_RETAINED:
            values = row.place(topic)
            if values is not None:
                device = values.get("device")
                is_ours = device is None or device in self._retired or self._directory.get(device) is not None
                return (device or values["principal"]) if is_ours else None
        return None

    async def _check_states(self, device: str, own: list[str]) -> None:
        entry = self._directory.get(device)
        if entry is None:
            self.suspect(device)
            return
        if entry.listed is not None and not all(_is_listed(entry, each) for each in own):
            self.suspect(device)
        excess = own[self._states :]
        if excess:
            self._complain(
                device, excess[0], f"{len(own)} retained values are more than the {self._states} allowed"
            )
            await self._retained.empty(excess)


def _is_listed(entry: Entry, topic: str) -> bool:
    values = topics.SKILL.match(topic) or topics.STATE.match(topic)
    return values is not None and values["skill"] in (entry.listed or ())


def _tell(what: str, emptied: set[str], left: set[str]) -> None:
    if emptied:
        _log.info("%d retained topics %s were emptied", len(emptied), what)
    if left:
        _log.warning("%d retained topics %s come back, %s for one", len(left), what, min(left))
