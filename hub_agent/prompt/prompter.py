"""The hub's prompt: what is the same from turn to turn, and what is known of the home right now."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from agent_core.models.entries import ToolMode
from agent_core.prompt import (
    Household,
    PromptDevice,
    Section,
    context_sections,
    devices_section,
    system_sections,
)
from agent_core.provenance import Prompt, Text
from agent_core.search.words import naming_words
from hub_agent.live.files import EditedFile
from hub_registry.access.accounts import User
from hub_registry.devices.directory import Directory, Entry
from hub_registry.storage.tables import now

_LISTED: Final = 10
"""Items of a list in the prompt; a skill lists them all."""


@dataclass(frozen=True)
class Asked:
    """A message, as far as the prompt depends on it.

    Attributes:
        said: What the person said, the newest last.
        device: Id of the current device.
        notes: What a client program tells the model.
    """

    user: User
    said: tuple[str, ...] = ()
    device: str | None = None
    notes: Text | None = None


@dataclass(frozen=True)
class PromptPart:
    """What a part of the live home adds to the changing part of a prompt.

    Attributes:
        untrusted: Whether strangers may have written some of it, so that calls which destroy something
            need a confirmation in this turn.
    """

    text: Prompt
    untrusted: bool = False


def list_part(what: str, items: Sequence[Prompt]) -> PromptPart | None:
    """Return a part that lists the first of some items and counts the others; None where there are none."""
    shown = [*items[:_LISTED], *([f"and {len(items) - _LISTED} more"] if len(items) > _LISTED else [])]
    return PromptPart(Prompt(f"{what}: {', '.join(shown)}")) if items else None


Contribution: TypeAlias = Callable[[Asked], Awaitable[PromptPart | None]]
"""Returns the part for a message; None for nothing."""


@dataclass(frozen=True)
class Context:
    """What changes from turn to turn; see `PromptPart`."""

    sections: tuple[Section, ...]
    untrusted: bool = False


class Prompter:
    """Makes the prompts of one hub.

    Args:
        soul: See `hub_agent.prompt.soul`.
        contributions: By the names of their sections, in the order of the prompt.
    """

    def __init__(
        self,
        household: Household,
        directory: Directory,
        *,
        soul: EditedFile[str],
        contributions: Mapping[str, Contribution],
    ) -> None:
        self._household = household
        self._directory = directory
        self.soul = soul
        self._contributions = contributions

    def household(self, user: User) -> Household:
        """Return the household as a user has it: with their language and time zone."""
        household = self._household
        return replace(
            household,
            language=user.language or household.language,
            time_zone=user.time_zone or household.time_zone,
        )

    def system(self, user: User, mode: ToolMode = "code", *, soul: str | None = None) -> tuple[Section, ...]:
        """Return the system prompt of a user; it changes only with settings and ``SOUL.md``.

        Args:
            soul: In place of ``SOUL.md``, for an agent with instructions of its own.
        """
        return system_sections(self.household(user), mode, soul=self.soul.value if soul is None else soul)

    async def context(self, asked: Asked, *, devices: bool = True, home: bool = True) -> Context:
        """Return what changes from turn to turn.

        Args:
            devices: Whether the devices are listed.
            home: Whether the parts of the live home contribute.
        """
        own = self._directory.seen_by(asked.user.id)
        entries = [entry for entry in own.entries() if not entry.revoked]
        here = next((entry for entry in entries if entry.id == asked.device), None)
        if devices and entries:
            words = naming_words(" ".join(asked.said))
            entries.sort(
                key=lambda entry: -len(words & naming_words(" ".join((*entry.names, *entry.places))))
            )
        more = [devices_section([_presence(entry) for entry in entries])] if devices and entries else []
        untrusted = False
        for name, contribute in self._contributions.items() if home else ():
            if (part := await contribute(asked)) is not None:
                more.append(Section(name, part.text))
                untrusted |= part.untrusted
        sections = context_sections(
            self.household(asked.user),
            now(),
            current=_presence(here) if here else None,
            more=more,
            notes=asked.notes,
        )
        return Context(sections, untrusted)


def _presence(entry: Entry) -> PromptDevice:
    device = entry.device
    return PromptDevice(
        key=device.key, name=device.display_name, area=device.area or "", online=entry.connected
    )
