"""A conversation made of entries of several writers: what is written, its order, what a model is told of it.

All of it is computed from the entries alone, so hub and spokes that have the same entries show the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from agent_core.gateway.protocol import AssistantMessage, Message, UserMessage
from contracts.events import Mode, SkillCalled, TurnEvent
from contracts.history import MOST_DEEDS, Entry, is_hub, pieces_of

_NO_ANSWER: Final = "(no answer)"
_DEED_CHARS: Final = 200
_TICK: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Words:
    """What is to be written down; see `contracts.history.Entry`."""

    conversation: str
    turn: str
    kind: Literal["question", "answer"]
    text: str
    agent: str = ""
    device: str | None = None
    mode: Mode | None = None
    did: tuple[str, ...] = ()
    untrusted: bool = False
    complete: bool = True

    def entries(self, *, origin: str, seq: int, at: datetime) -> list[Entry]:
        """Make the entries for it; a long text is cut into several.

        Args:
            seq: Of the first one.
        """
        return [
            Entry(
                origin=origin,
                seq=seq + number,
                conversation=self.conversation,
                turn=self.turn,
                at=at,
                kind=self.kind,
                text=piece,
                agent=self.agent,
                device=self.device,
                mode=self.mode,
                did=tuple(_whole(deed)[:_DEED_CHARS] for deed in self.did[:MOST_DEEDS]),
                untrusted=self.untrusted,
                complete=self.complete,
            )
            for number, piece in enumerate(pieces_of(_whole(self.text)))
        ]


@dataclass(frozen=True)
class Exchange:
    """One turn of a conversation.

    Attributes:
        answer: None where nothing was answered, or not yet.
        untrusted: Whether text from outside the home came into it.
        turn: Its id; empty where a client told of it.
        at: When it was asked.
        mode: Who answered.
        writer: Who wrote the answer down, or else the question; empty for whoever reads.
        device: Id of the current device, where there is one.
        did: What tools did, a line each.
        complete: Whether the answer was not broken off.
    """

    question: str
    answer: str | None
    untrusted: bool = False
    turn: str = ""
    at: datetime | None = None
    mode: Mode | None = None
    writer: str = ""
    device: str | None = None
    did: tuple[str, ...] = ()
    complete: bool = True


@dataclass(frozen=True)
class ConversationSummary:
    """A conversation, among others.

    Attributes:
        asked: The first question.
        last: When something was said in it last.
    """

    id: str
    asked: str
    last: datetime


def moment_after(now: datetime, latest: datetime | None) -> datetime:
    """Give the time of a new entry: never before what its writer knew of the conversation.

    So what answers something stands after it, also where a clock is wrong or was set back.

    Args:
        latest: Of the entries of this conversation that the writer knows; None for a new one.
    """
    return now if latest is None else max(now, latest + _TICK)


def deed_of(event: TurnEvent) -> str | None:
    """Give the line to keep for an event of a turn; None if nothing was done."""
    if not isinstance(event, SkillCalled) or event.state not in ("done", "failed"):
        return None
    where = f" on {event.device}" if event.device else ""
    return f"{event.path}{where}: {event.state}"


def ordered(entries: Iterable[Entry]) -> list[Entry]:
    """Put entries of one conversation in the order in which they are shown.

    By time, then origin, then number; the entries of a turn stay together, where its first one stands.
    Entries of one origin stay in the order of their numbers, whatever times they bear.
    """
    by_number = sorted({entry.key: entry for entry in entries}.values(), key=lambda entry: entry.key)
    latest: dict[str, datetime] = {}
    keys: dict[tuple[str, int], tuple[datetime, str, int]] = {}
    turns: dict[str, tuple[datetime, str, int]] = {}
    for entry in by_number:
        at = latest[entry.origin] = max(entry.at, latest.get(entry.origin, entry.at))
        key = keys[entry.key] = (at, *entry.key)
        turns[entry.turn] = min(key, turns.get(entry.turn, key))
    return sorted(by_number, key=lambda entry: (turns[entry.turn], keys[entry.key]))


def exchanges_of(entries: Iterable[Entry]) -> list[Exchange]:
    """Make the turns of one conversation, in order.

    A turn may have been written down at two places, in whole or in part: the spoke keeps what it has seen
    of an answer that breaks off, the hub what it made of it. It is shown once, with the most that there is.
    A turn whose question is missing is left out.
    """
    turns: dict[str, list[Entry]] = {}
    for entry in ordered(entries):
        turns.setdefault(entry.turn, []).append(entry)
    return [exchange for turn in turns.values() if (exchange := _exchange(turn)) is not None]


def messages_of(exchanges: Iterable[Exchange], *, reader: str) -> tuple[Message, ...]:
    """Tell the answered turns to a model, marked where they are from elsewhere.

    Args:
        reader: The writer on whose side the model is asked; all processes of the hub are one.
    """
    messages: list[Message] = []
    for exchange in exchanges:
        if exchange.answer is not None:
            question = "\n".join(filter(None, (_mark(exchange, reader), exchange.question)))
            messages += [UserMessage(question), AssistantMessage(exchange.answer or _NO_ANSWER)]
    return tuple(messages)


def _whole(text: str) -> str:
    """Join characters that came in two halves, which cannot be stored; a lone half becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _exchange(turn: Sequence[Entry]) -> Exchange | None:
    questions = [entry for entry in turn if entry.kind == "question"]
    if not questions:
        return None
    asked = [entry for entry in questions if entry.origin == questions[0].origin]
    told: dict[str, list[Entry]] = {}
    for entry in turn:
        if entry.kind == "answer":
            told.setdefault(entry.origin, []).append(entry)
    answer = max(told.values(), key=_worth, default=[])
    last = answer[-1] if answer else asked[-1]
    return Exchange(
        question=_text(asked),
        answer=_text(answer) if answer else None,
        untrusted=any(entry.untrusted for entry in turn),
        turn=last.turn,
        at=asked[0].at,
        mode=last.mode,
        writer=last.writer,
        device=asked[0].device,
        did=last.did,
        complete=last.complete,
    )


def _worth(answer: Sequence[Entry]) -> tuple[bool, bool, int]:
    # What the hub ran, it knows best itself; what it did not run, it has no answer to.
    return answer[-1].complete, is_hub(answer[-1].writer), sum(len(entry.text) for entry in answer)


def _text(entries: Iterable[Entry]) -> str:
    return "".join(entry.text for entry in entries)


def _mark(exchange: Exchange, reader: str) -> str:
    writer = exchange.writer
    if not writer or writer == reader or (is_hub(writer) and (is_hub(reader) or exchange.device == reader)):
        return ""
    place = "the hub" if is_hub(writer) else writer
    return f"[Asked and answered on {place}{', offline' if exchange.mode == 'offline' else ''}]"
