"""The memory of a home: entries remembered, found again, forgotten, and shown to the model.

Every user sees what is remembered for the household, and what is remembered for them alone.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from agent_core.files.edited_file import MAX_BYTES, EditedFile
from agent_core.models.entries import Model
from agent_core.prompt import estimate_tokens
from agent_core.provenance import Origin, Prompt, Text, render
from agent_core.search.embeddings import Embeddings, fused, open_embeddings
from agent_core.search.ranking import Document, Ranking
from agent_core.search.words import query_terms
from contracts.answers.live import ShownEntry
from contracts.errors import Conflict, FileProblem, InvalidMessage, NotFound, StorageError
from hub_agent.prompt import Asked, PromptPart
from hub_live import limits
from hub_live.memory.markdown import (
    GENERAL,
    MemoryEntry,
    parse,
    with_change,
    with_entry,
    without_entries,
)
from hub_registry.storage.tables import now
from identity.files import write_private

FILE_NAME: Final = "MEMORY.md"

MAX_TEXT: Final = 500
"""Characters of one entry: a fact, not a document."""
MAX_CATEGORY: Final = 64
_NEW: Final = """\
# Memory

<!-- What Strawberry remembers. Edit it as you like: each line is an entry, each heading a category.
     What stands below a line "# Private: USER" is for that user alone. -->
"""


class Memory:
    """Entries in a file that people edit while the hub runs.

    Args:
        path: The file.
        embeddings: Search by meaning; None for words alone.
    """

    def __init__(self, path: Path, *, embeddings: Embeddings | None = None) -> None:
        self.path = path
        self._file: EditedFile[tuple[MemoryEntry, ...]] = EditedFile(path, parse, absent=())
        self.embeddings = embeddings
        self._ranking = Ranking()
        self._indexed: tuple[MemoryEntry, ...] = ()
        self._rows: dict[str, int] = {}
        self._next_row = 1
        self._done: dict[str, deque[tuple[MemoryEntry | None, MemoryEntry | None]]] = {}
        self._one = asyncio.Lock()

    def close(self) -> None:
        self._ranking.close()

    @property
    def problem(self) -> FileProblem | None:
        # While there is one, the last valid content stays in effect.
        return self._file.problem

    def entries(self, user: str) -> list[MemoryEntry]:
        """Return what a user may see, as written in the file."""
        known = {entry.id: entry for entry in self._file.value if entry.private in (None, user.casefold())}
        return list(known.values())

    async def remember(
        self,
        user: str,
        category: str,
        text: str,
        *,
        private: bool = False,
        device: str | None = None,
        conversation: str | None = None,
        untrusted: bool = False,
    ) -> MemoryEntry:
        """Add an entry; one that is there already is returned as it is.

        Args:
            private: Whether it is for this user alone.
            device: Id of the device through which it was said, where it was through one.
            conversation: Where it was said.
            untrusted: Whether text of strangers was read before.

        Raises:
            InvalidMessage: If there is no text, too much of it, or no room for more.
            FileProblem: If the file is not valid as it is.
            StorageError: If it cannot be written.
        """
        category, text = _checked(category, text)
        entry = MemoryEntry(
            category=category,
            text=text,
            private=user.casefold() if private else None,
            at=now(),
            by=user,
            device=device,
            conversation=conversation,
            untrusted=untrusted,
        )

        def add(before: str) -> str:
            entries = parse(before)
            if any(each.id == entry.id for each in entries):
                return before
            if len(entries) >= limits.MOST_MEMORIES:
                raise _full()
            return with_entry(before or _NEW, entry)

        if await self._change(add):
            self._note(user, None, entry)
        return next((each for each in self.entries(user) if each.id == entry.id), entry)

    async def change(
        self, user: str, id_: str, *, category: str | None = None, text: str | None = None
    ) -> MemoryEntry:
        """Change the text or category of an entry; a person who writes the text vouches for it.

        Raises:
            NotFound: If there is no entry of this id.
            Conflict: If there is such an entry already.
            InvalidMessage: If there is no text, or too much of it.
        """
        old = next((each for each in self.entries(user) if each.id == id_), None)
        if old is None:
            raise _unknown(id_)
        category, wanted = _checked(category or old.category, old.text if text is None else text)
        new = replace(
            old, category=category, text=wanted, at=now(), by=user, untrusted=old.untrusted and text is None
        )
        if new.id == old.id:
            return old
        await self._replace(old, new)
        self._note(user, old, new)
        return new

    async def undo(self, user: str) -> MemoryEntry:
        """Undo the last change of a person, and return the entry that it was about.

        Raises:
            Conflict: If there is none since the hub started, or the entry was changed since.
        """
        if not (done := self._done.get(user)):
            raise Conflict("there is nothing to undo", hint="Only changes since the hub started can be.")
        old, new = done[-1]
        if new is None:
            assert old is not None
            await self._change(lambda before: with_entry(before or _NEW, old))
        elif any(each.id == new.id for each in self.entries(user)):
            await (self._forget(new) if old is None else self._replace(new, old))
        else:
            done.pop()
            raise Conflict("this entry was changed since", hint="Undo takes back the change before it now.")
        done.pop()
        return old or new  # type: ignore[return-value]

    async def recall(self, user: str, query: str, *, limit: int = 10) -> list[MemoryEntry]:
        """Find entries by words and, where a model for it is set, by meaning; best first.

        Without a query, the newest come first.
        """
        seen = self.entries(user)
        if not query.strip():
            return _newest_first(seen)[:limit]
        return (await self._matching(seen, query, meaning=limit))[:limit]

    async def forget(self, user: str, which: str) -> MemoryEntry:
        """Remove an entry, named by its id or by (a part of) its text.

        Raises:
            NotFound: If there is no such entry.
            Conflict: If there are several.
        """
        which = " ".join(which.split())
        seen, wanted = self.entries(user), which.casefold()
        exact = [entry for entry in seen if wanted in (entry.id, entry.text.casefold())]
        found = exact or [entry for entry in seen if wanted and wanted in entry.text.casefold()]
        if not found:
            near = await self.recall(user, which, limit=3) if which else []
            listed = f"Near to it: {'; '.join(map(_named, near))}. " if near else ""
            raise NotFound(
                "nothing is remembered as {which!r}",
                which=which[:MAX_CATEGORY],
                listed=listed,
                hint="{listed}'strawberry memory list' shows all.",
            )
        if len(found) > 1:
            raise Conflict(
                "{entries} entries have this text",
                entries=len(found),
                ids="; ".join(map(_named, found[:5])),
                hint="Name one by its id: {ids}.",
            )
        await self._forget(found[0])
        self._note(user, found[0], None)
        return found[0]

    async def forget_person(self, user: str) -> None:
        """Remove what is remembered for a person alone who was removed."""
        theirs = {entry.id for entry in self._file.value if entry.private == user.casefold()}
        if theirs:
            await self._change(lambda before: without_entries(before, theirs))
        self._done.pop(user, None)

    async def _forget(self, entry: MemoryEntry) -> None:
        await self._change(lambda before: without_entries(before, {entry.id}))

    async def _replace(self, old: MemoryEntry, new: MemoryEntry) -> None:
        def edit(before: str) -> str:
            ids = {each.id for each in parse(before)}
            if old.id not in ids:
                raise _unknown(old.id)
            if new.id in ids:
                raise Conflict("there is such an entry already", hint="Forget one of the two.")
            return with_change(before, old, new)

        await self._change(edit)

    def _note(self, user: str, old: MemoryEntry | None, new: MemoryEntry | None) -> None:
        self._done.setdefault(user, deque(maxlen=limits.MOST_UNDONE)).append((old, new))

    async def prompt_part(self, asked: Asked) -> PromptPart | None:
        """Return what the prompt of a turn says of the memory; see `hub_agent.prompt.Contribution`.

        All of it while there is room, so that it is the same from turn to turn; otherwise what the message
        names, then what is newest. What was written after text of strangers had been read is in it only
        where the message names it.
        """
        seen = self.entries(asked.user.id)
        if not seen:
            return None
        named = await self._matching(seen, " ".join(asked.said), meaning=0)
        rest = _newest_first(entry for entry in seen if not entry.untrusted)
        room, chosen = limits.MEMORY_PROMPT_TOKENS, set[str]()
        for entry in [*named, *rest]:
            size = estimate_tokens(f"{_line(entry)}\n## {entry.category}\n")
            if entry.id not in chosen and size <= room:
                room -= size
                chosen.add(entry.id)
        shown = [entry for entry in seen if entry.id in chosen]
        own, foreign = (
            [each for each in shown if each.untrusted is untrusted] for untrusted in (False, True)
        )
        parts: list[Text | Prompt] = [Prompt("What you remember:")]
        if own:
            parts.append(Text(Origin.FILE, _listed(own), FILE_NAME))
        if foreign:
            parts.append(Text(Origin.OUTSIDE, _listed(foreign), FILE_NAME))
        if left_out := len(seen) - len(shown):
            parts.append(Prompt(f"({left_out} more; devices.hub.MemorySkill.recall(query) finds them)"))
        return PromptPart(render(*parts), bool(foreign))

    async def _change(self, edit: Callable[[str], str]) -> bool:
        async with self._one:
            if self.problem is not None:
                # Without the calls that it was raised in before: each would stay in memory.
                raise self.problem.with_traceback(None)
            return await asyncio.to_thread(self._write, edit)

    def _write(self, edit: Callable[[str], str]) -> bool:
        """Edit the file; return whether that changed it."""
        try:
            for _ in range(limits.MEMORY_ATTEMPTS):
                before = self.path.read_bytes() if self.path.exists() else b""
                after = edit(before.decode()).encode()
                if len(after) > MAX_BYTES >= len(before):
                    raise _full()
                if after == before:
                    return False
                if write_private(self.path, after, instead_of=before):
                    return True
        except UnicodeDecodeError:
            raise StorageError("{path} is not UTF-8 text", path=self.path, hint="Save it as UTF-8.") from None
        except OSError as error:
            raise StorageError(
                "{path} cannot be written: {reason}", path=self.path, reason=error.strerror or error
            ) from None
        raise StorageError(
            "{file} changes all the time", file=self.path, hint="Does another program write it?"
        )

    async def _matching(self, seen: Sequence[MemoryEntry], query: str, *, meaning: int) -> list[MemoryEntry]:
        """Return the entries that fit a query, best first.

        Args:
            meaning: How many of those that are near in meaning count, whatever their words.
        """
        self._index()
        by_row = {self._rows[entry.id]: entry for entry in seen if entry.id in self._rows}
        ranked = [each for each in self._ranking.search(query_terms(query)) if each[0] in by_row]
        similar = None
        if self.embeddings is not None and meaning:
            similar = await self.embeddings.similar(query, among=by_row)
        if similar is not None:
            similar = similar.standing_out(meaning)
        found = sorted(fused(ranked, similar), key=lambda each: (-each[1], each[0]))
        return [by_row[row] for row, _ in found]

    def _index(self) -> None:
        """Bring the index up to date with the file."""
        entries = self._file.value
        if entries is self._indexed:
            return
        known = {entry.id: entry for entry in entries}
        for id_ in self._rows.keys() - known.keys():
            self._ranking.remove(self._rows.pop(id_))
        for id_ in [id_ for id_ in known if id_ not in self._rows]:
            entry = known[id_]
            self._rows[id_] = self._next_row
            self._next_row += 1
            document = Document(method="", skill=entry.category, summary=entry.text, arguments="", text="")
            self._ranking.put(self._rows[id_], document)
        if self.embeddings is not None:
            self.embeddings.keep(
                {self._rows[id_]: f"{entry.category}: {entry.text}" for id_, entry in known.items()}
            )
        self._indexed = entries


@asynccontextmanager
async def open_memory(
    directory: Path, *, embeddings: Model | None, tasks: asyncio.TaskGroup
) -> AsyncIterator[Memory]:
    """Open the memory of a home.

    Args:
        directory: Where its file is.
        embeddings: The model by which it is also searched by meaning; None for the token vectors.
        tasks: Owns what runs in the background.
    """
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_embeddings(embeddings, tasks=tasks))
        memory = Memory(directory / FILE_NAME, embeddings=opened)
        stack.callback(memory.close)
        yield memory


def shown(entry: MemoryEntry) -> ShownEntry:
    """Return an entry as people and programs read it."""
    fields = {name: getattr(entry, name) for name in ShownEntry.model_fields}
    return ShownEntry(**{**fields, "private": entry.private is not None})


def _checked(category: str, text: str) -> tuple[str, str]:
    """Return category and text as they are written.

    Raises:
        InvalidMessage: If there is no text, or too much of one.
    """
    category, text = " ".join(category.split()).strip("# ") or GENERAL, " ".join(text.split())
    if not any(map(str.isalnum, text)):
        raise InvalidMessage("there is nothing to remember", hint="Give the text of the entry.")
    for what, given, most in (("a category", category, MAX_CATEGORY), ("an entry", text, MAX_TEXT)):
        if len(given) > most:
            raise InvalidMessage(
                "{what} has at most {most} characters", what=what, most=most, hint="Say it shorter."
            )
    return category, text


def _unknown(id_: str) -> NotFound:
    return NotFound(
        "there is no entry {id!r}", id=id_[:MAX_CATEGORY], hint="'strawberry memory list' shows all."
    )


def _newest_first(entries: Iterable[MemoryEntry]) -> list[MemoryEntry]:
    # What people wrote into the file has no time, and comes first.
    return sorted(entries, key=lambda entry: (entry.at is not None, -(entry.at or now()).timestamp()))


def _listed(entries: Iterable[MemoryEntry]) -> str:
    lines: list[str] = []
    category = ""
    for entry in entries:
        if entry.category != category:
            category = entry.category
            lines.append(f"## {category}")
        lines.append(_line(entry))
    return "\n".join(lines)


def _line(entry: MemoryEntry) -> str:
    if entry.at is None:
        return f"- {entry.text}"
    by = f", {entry.by}" if entry.by else ""
    return f"- {entry.text} ({entry.at:%Y-%m-%d}{by})"


def _named(entry: MemoryEntry) -> str:
    # The assistant reads it, too, and asks for text of strangers by a name of its own.
    return f"{entry.id} {'(untrusted)' if entry.untrusted else repr(entry.text[:MAX_CATEGORY])}"


def _full() -> InvalidMessage:
    return InvalidMessage(
        "{file} is full", file=FILE_NAME, hint="Forget what is out of date, or tidy up {file} in an editor."
    )
