"""The home as a skill sees it: ``self.home.devices.kitchen.LampSkill.turn_on()``."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from contracts.wire import Json


@dataclass(frozen=True)
class PresentCall:
    """The call that runs.

    Attributes:
        id: Of a call of the hub; None for one of this device, and in what runs by itself.
        method: None in what runs by itself.
    """

    id: str | None = None
    method: str | None = None


NO_CALL: Final = PresentCall()
PRESENT_CALL: ContextVar[PresentCall] = ContextVar("present_call", default=NO_CALL)

HomeCaller = Callable[
    [str, PresentCall, Sequence[str], Sequence[object], Mapping[str, object]], "Future[Json]"
]
"""Calls for a skill: its name, the call in which it does, device, skill and method, and the arguments."""


class HomePath:
    """A device, a skill or a method; a method is called as usual, in an ``async`` method with ``await``."""

    def __init__(self, call: HomeCaller, skill: str, names: tuple[str, ...] = ()) -> None:
        self._call, self._skill, self._names = call, skill, names

    def __getattr__(self, name: str) -> "HomePath":
        if name.startswith("_") or len(self._names) == 3:
            raise AttributeError(name)
        return HomePath(self._call, self._skill, (*self._names, name))

    __getitem__ = __getattr__

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Call the method.

        Raises:
            CallError: There is no result.
        """
        if len(self._names) != 3:
            raise TypeError("a call is written home.devices.DEVICE.SKILL.METHOD(…)")
        called = self._call(self._skill, PRESENT_CALL.get(), self._names, args, kwargs)
        try:
            return asyncio.wrap_future(called, loop=asyncio.get_running_loop())
        except RuntimeError:  # a plain method, in a thread of its own
            return called.result()


class Home:
    """The home.

    Attributes:
        devices: By key; ``hub`` is whichever device serves, and the hub's own skills.
    """

    def __init__(self, call: HomeCaller, skill: str) -> None:
        self.devices = HomePath(call, skill)
