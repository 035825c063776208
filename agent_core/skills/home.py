"""The home as a skill sees it: ``self.home.devices.kitchen.LampSkill.turn_on()``."""

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from contracts.wire import Json

PRESENT_CALL: ContextVar[str | None] = ContextVar("present_call", default=None)
"""Id of the call that runs; None in what runs by itself."""


class HomeCaller(Protocol):
    """Calls skills of the home for a skill of this device."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop in which it calls."""
        ...

    async def call(
        self,
        skill: str,
        within: str | None,
        path: Sequence[str],
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> Json:
        """Call a method and return its result.

        Args:
            skill: Who calls.
            within: Id of the call in which it is made.
            path: Device, skill and method.

        Raises:
            CallError: If there is no result.
        """
        ...


class HomePath:
    """A device, a skill or a method; a method is called as usual, in an ``async`` method with ``await``."""

    def __init__(self, caller: HomeCaller, skill: str, names: tuple[str, ...] = ()) -> None:
        self._caller = caller
        self._skill = skill
        self._names = names

    def __getattr__(self, name: str) -> "HomePath":
        if name.startswith("_") or len(self._names) == 3:
            raise AttributeError(name)
        return HomePath(self._caller, self._skill, (*self._names, name))

    __getitem__ = __getattr__

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if len(self._names) != 3:
            raise TypeError("a call is written home.devices.DEVICE.SKILL.METHOD(…)")
        made = self._caller.call(self._skill, PRESENT_CALL.get(), self._names, args, kwargs)
        called = asyncio.run_coroutine_threadsafe(made, self._caller.loop)
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a plain method, in a thread of its own
            return called.result()
        return asyncio.wrap_future(called)


class Home:
    """The home.

    Attributes:
        devices: By key; ``hub`` is whichever device serves, and the hub's own skills.
    """

    def __init__(self, caller: HomeCaller, skill: str) -> None:
        self.devices = HomePath(caller, skill)
