"""What a turn sees of the skills: search results, targets of calls, and their paths."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from agent_core.schemas.class_text import class_lines
from contracts.devices.registration import Method, MethodFlags
from contracts.wire import Json


@dataclass(frozen=True)
class Target:
    """A method on a device, found by its path.

    Attributes:
        path: The canonical one: ``devices.<key>.<Skill>.<method>``.
        device: Id of the device, or ``hub`` for the virtual one.
        device_name: What people call it.
        is_hub_own: Whether the hub itself runs it, and no device.
        labels: What people call the skill and its members.
    """

    path: str
    device: str
    device_name: str
    skill: str
    method: Method
    is_hub_own: bool = False
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class SkillCall:
    """A call of a method that was found.

    Attributes:
        arguments: By name, checked against the schema of the method.
        confirmed: Whether a person confirmed exactly this call.
        untrusted: Whether text that may be a stranger's was in the turn's context before it.
        has_read: Whether that, or text of any device, was in it.
        by_sentence: Whether the words of a declared sentence ask for exactly this call, and no model.
        on_progress: Takes what the method reports on the way.
        waiting: Makes a context manager in which the clock of the program that calls stands still; the turn's
            goes on.
    """

    target: Target
    arguments: Mapping[str, Json]
    confirmed: bool = False
    untrusted: bool = False
    has_read: bool = False
    by_sentence: bool = False
    on_progress: Callable[[Json], None] | None = None
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass(frozen=True)
class FoundMethod:
    """One search result: one skill method, on as many devices as have it.

    Attributes:
        path: How to call it, on the first of the devices.
        devices: Keys of the devices, the current one first.
        more_devices: How many further ones there are.
        unavailable: Why no device can serve it right now; empty if one can.
        offline: By device, why that one cannot be called right now.
    """

    path: str
    signature: str
    summary: str
    devices: tuple[str, ...]
    flags: MethodFlags = field(default_factory=MethodFlags)
    unavailable: str = ""
    more_devices: int = 0
    offline: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Json]:
        """Return it as programs see it."""
        *_, skill, name = self.path.split(".")
        made: dict[str, Json] = {
            "path": self.path,
            "name": name,
            "parent_class": skill,
            "signature": self.signature,
            "summary": self.summary,
            "devices": list(self.devices),
            "flags": raised_flags(self.flags),
        }
        if self.more_devices:
            made["more_devices"] = self.more_devices
        if self.unavailable:
            made["unavailable"] = self.unavailable
        elif self.offline:
            made["offline"] = dict(self.offline)
        return made


@dataclass(frozen=True)
class FailingSkill:
    """A skill of which no found method tells that it fails: it did not load, or a background task failed.

    Attributes:
        device: Key of its device.
    """

    device: str
    skill: str
    reason: str


@dataclass(frozen=True)
class SearchPage:
    """The best results and how many there are in all.

    Attributes:
        total: Of a word that is almost everywhere, at least so many.
        failing: Skills that fail and whose names have a word of the query.
    """

    results: tuple[FoundMethod, ...]
    total: int
    failing: tuple[FailingSkill, ...] = ()

    @property
    def more(self) -> int:
        return self.total - len(self.results)


class Catalogue(Protocol):
    """The skills that one user has, seen from the current device of a turn.

    A path is ``devices.<key>.<Skill>.<method>``, ``device.<Skill>.<method>`` for the current device,
    or either with ``device_manager`` for ``devices``.
    """

    async def search(self, query: str) -> SearchPage:
        """Find methods, best first; those of the current device first among equals."""

    async def describe(self, path: str) -> str:
        """Return signature, documentation, flags and devices as text; also by ``Skill.method`` or ``method``.

        The name of a class gives its documentation and its methods.

        Raises:
            CallError: ``unknown_skill`` with the nearest names.
        """

    async def describe_skill(self, name: str) -> dict[str, Json]:
        """Return what a skill is and has, by the name of its class; or ``method_info`` of one method.

        Raises:
            CallError: ``unknown_skill`` with the nearest names.
        """

    async def resolve(self, path: str) -> Target:
        """Find the method that a path means; executes nothing.

        Raises:
            CallError: ``unknown_skill`` with the nearest names.
        """


def raised_flags(flags: MethodFlags) -> list[str]:
    return [name for name, value in flags.model_dump().items() if value]


def describe_target(target: Target, devices: tuple[str, ...] = ()) -> str:
    """Return the documentation of a method as ``describe_function`` shows it: as Python would have it."""
    lines = [f"def {target.method.signature}:"]
    if target.method.doc.strip():
        lines += [f"    {line}".rstrip() for line in ('"""', *target.method.doc.strip().splitlines(), '"""')]
    lines += class_lines([target.method])
    lines.append(f"# path: {target.path}")
    if devices:
        lines.append(f"# devices: {', '.join(devices)}")
    flags = raised_flags(target.method.flags)
    if flags:
        lines.append(f"# flags: {', '.join(flags)}")
    return "\n".join(lines)


def method_info(target: Target, devices: tuple[str, ...] = ()) -> dict[str, Json]:
    """Return the documentation of a method as programs see it."""
    return {
        "path": target.path,
        "name": target.method.name,
        "parent_class": target.skill,
        "signature": target.method.signature,
        "docstring": target.method.doc,
        "types": "\n".join(class_lines([target.method])),
        "devices": list(devices),
        "flags": raised_flags(target.method.flags),
    }
