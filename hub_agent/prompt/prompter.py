"""The hub's prompt: what is the same from turn to turn, and what is known of the home right now."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from agent_core.files.edited_file import EditedFile
from agent_core.models.entries import ToolMode
from agent_core.prompt import (
    Household,
    PromptDevice,
    Section,
    context_sections,
    devices_section,
    system_sections,
)
from agent_core.provenance import EMPTY, Prompt, Text
from agent_core.search.words import naming_words, singular_words
from chat.tasks import open_tasks
from hub_agent import limits
from hub_agent.agents.agent import ASSISTANT, Agent
from hub_registry.access.accounts import User
from hub_registry.devices.directory import Directory, Entry
from hub_registry.storage.tables import now

_ACTING: Final = Section(
    "acting",
    Prompt("""\
# How you act
- To do something, call a tool. A call that fails gives an error with a hint. Correct the call once.
- Never say that something was done when its call failed. When a person refuses a call, accept it.
- Where you can answer without a tool, just answer.

"""),
)
_BESIDE: Final = Prompt("- Your other tools are called by themselves, not in a program.\n\n")


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
    shown = [
        *items[: limits.PROMPT_ITEMS],
        *([f"and {len(items) - limits.PROMPT_ITEMS} more"] if len(items) > limits.PROMPT_ITEMS else []),
    ]
    return PromptPart(Prompt(f"{what}: {', '.join(shown)}")) if items else None


Contribution: TypeAlias = Callable[[Asked], Coroutine[Any, Any, PromptPart | None]]
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
        return self._household.of(user.language, user.time_zone)

    def system(
        self, agent: Agent, user: User, mode: ToolMode = "code", *, skills: bool = True
    ) -> tuple[Section, ...]:
        """Return the system prompt; it changes only with settings, ``SOUL.md`` and the agent's profile.

        An agent's own instructions take the place of the assistant's role and of ``SOUL.md``.

        Args:
            skills: Whether it has its tools; not where a client offers tools in their place.
        """
        profile = agent.profile
        soul = self.soul.value if profile is None else profile.prompt
        sections = {
            section.name: section for section in system_sections(self.household(user), mode, soul=soul)
        }
        if not skills:
            sections["acting"] = _ACTING
        if profile is None:
            return tuple(sections.values())
        if skills and not profile.skills.allow:
            sections["acting"] = _ACTING if profile.tools else Section("acting", EMPTY)
        elif skills and profile.tools:
            text = f"{sections['acting'].text.rstrip()}\n{_BESIDE}"
            sections["acting"] = Section("acting", Prompt(text))
        del sections["role"]
        return sections.pop("soul"), *sections.values()

    async def context(self, agent: Agent, asked: Asked) -> Context:
        """Return what changes from turn to turn; what is known of the home is for the assistant alone."""
        own = self._directory.seen_by(asked.user.id)
        entries = [entry for entry in own.entries() if not entry.revoked]
        here = next((entry for entry in entries if entry.id == asked.device), None)
        more = list[Section]()
        if agent.allow != () and entries:
            words = singular_words(" ".join(asked.said))
            entries.sort(
                key=lambda entry: -len(words & naming_words(" ".join((*entry.names, *entry.places))))
            )
            more = [devices_section([_presence(entry) for entry in entries])]
        untrusted = False
        contributions = self._contributions if agent is ASSISTANT else {}
        async with open_tasks() as tasks:
            # At once: each of them may wait for another replica.
            open_parts = {
                name: tasks.create_task(contribute(asked), name=f"prompt: {name}")
                for name, contribute in contributions.items()
            }
            parts = {name: await task for name, task in open_parts.items()}
        for name, part in parts.items():
            if part is not None:
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
