"""Answers about watchers: what they watch, what they decided, when they would have fired."""

from typing import Annotated, Final

from pydantic import ConfigDict, Field

from contracts.answers.live import LinkName, ShownGap
from contracts.wire import Json, OrAbsent, Part, Phrased, PhraseText, Strict, Timestamp

Line = list[tuple[float, float]]
"""Unix seconds and values, in the order of time."""


class Allowed(Strict):
    """A call that a watcher may make.

    Attributes:
        path: ``devices.<key>.<Skill>.<method>``.
        arguments: By name, either the one value that is approved, or a range: ``{"minimum": 0, "maximum":
            50}`` or ``{"enum": ["low", "high"]}``, of which the model chooses one. Arguments that are not
            named cannot be given.
    """

    path: Annotated[str, Field(max_length=200)]
    arguments: dict[str, Json] = {}


class Step(Strict):
    """One step of what a watcher does without a model: a text or a call, at once or later.

    Attributes:
        notify: Text for the owner; ``{level}`` stands for the value of that name.
        call: ``devices.<key>.<Skill>.<method>``.
        arguments: Of the call, by name.
        after: How long it waits, as ``20m``, from when the steps before it began.
        if_still: Whether it, and what follows, is dropped when the condition ends before.
    """

    notify: Annotated[str | None, Field(min_length=1, max_length=1_000)] = None
    call: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    arguments: dict[str, Json] = {}
    after: Annotated[str | None, Field(max_length=32)] = None
    if_still: bool = False


class WouldDecide(Phrased):
    """What the model decides on values of the past."""

    decision: str
    reason: PhraseText
    actions: OrAbsent[list[Allowed]] = None


OUTCOMES: Final = {
    "result": "done",
    "dry_run": "dry run",
    "unknown": "perhaps done",
    "limited": "not done: too many in an hour",
    "skipped": "not done",
}
"""How a call of a decision that has no error is shown."""


class MadeCall(Phrased):
    """A call of a decision.

    Attributes:
        outcome: ``result``; the code of its error; ``dry_run``; ``limited`` or ``skipped`` where it was not
            made, with the reason in ``error``; ``unknown`` where the hub stopped meanwhile.
        result: As JSON, its beginning.
        said: What is called, in words.
    """

    path: str
    arguments: dict[str, Json]
    said: OrAbsent[PhraseText] = None
    outcome: str
    result: OrAbsent[str] = None
    error: OrAbsent[PhraseText] = None


class DecisionSummary(Phrased):
    """An entry of the history in short, made of a `DecisionRow`."""

    model_config = ConfigDict(from_attributes=True)

    at: Timestamp
    decision: str
    reason: PhraseText
    actions: list[MadeCall]


class DecisionEntry(DecisionSummary):
    """An entry of the history."""

    state: str
    seen: dict[str, Json]
    tokens: int
    dry_run: bool


class Fired(Part):
    """When a watcher would have fired, and on which values; ``decision`` where a model was asked."""

    at: Timestamp
    values: dict[str, Json]
    decision: OrAbsent[WouldDecide] = None


class Report(Phrased):
    """The outcome of a back-test.

    Attributes:
        would_have_fired: The first thousand, each with its time and values.
        fired: How many there are.
        evaluated: How often a value came or time alone changed what the predicate said.
        unknown: How often it was unknown.
        reason: Why it was unknown the last time.
        gaps: Times in which nothing was recorded.
        lines: The numbers by name, with as many points as a plot shows; only where they are wanted.
    """

    would_have_fired: list[Fired]
    fired: int
    evaluated: int
    unknown: int
    reason: PhraseText
    gaps: list[ShownGap]
    lines: OrAbsent[dict[str, Line]] = None


class WatchedTopic(Part):
    """A value that a watcher sees; see `WatchedValue`."""

    topic: str
    value: OrAbsent[str] = None
    link: LinkName
    ask: OrAbsent[str] = None
    arguments: OrAbsent[dict[str, Json]] = None
    every: OrAbsent[str] = None


class WatcherSummary(Phrased):
    """A watcher as people and programs read it.

    Attributes:
        name: Its id.
        title: What people call it.
        digest: Of all that an approval is for; to be sent with it.
        sentence: What it does, with the parts that can be changed between ``**``.
        next_step_at: When the step that waits is done.
    """

    name: str
    title: str
    digest: str
    state: str
    owner: str
    sentence: PhraseText
    instruction: str
    predicate: str | None
    note: PhraseText
    truth: bool | None
    reason: PhraseText
    topics: dict[str, WatchedTopic]
    every_s: float | None
    on_change: bool
    schedule: str | None
    next_at: Timestamp | None
    allow: list[Allowed]
    then: list[Step]
    next_step_at: Timestamp | None
    dry_run: bool
    snoozed_until: Timestamp | None
    fired: int
    evaluations: int
    model_calls: int
    tokens: int
    last: DecisionSummary | None


class WatcherWithHistory(WatcherSummary):
    """A watcher with its history, newest first."""

    history: list[DecisionEntry]


class TracePart(Phrased):
    """A part of a condition, in words with its values in bold as in Markdown, and what it was worth."""

    text: PhraseText
    truth: bool | None


class TraceEntry(Phrased):
    """A look at a watcher, or like ones in a row, and why it did something or nothing.

    Attributes:
        since: Of the first of them.
        at: Of the last of them, whose values are here.
        truth: Of the predicate; None where it is not known, or there is none.
        parts: Those that the predicate is joined of.
        actions: The calls that it made.
    """

    since: Timestamp
    at: Timestamp
    count: int
    outcome: PhraseText
    truth: bool | None
    parts: list[TracePart]
    values: dict[str, Json]
    actions: list[MadeCall] = []


class ProposedWatcher(Phrased):
    """A watcher that is not made yet.

    Attributes:
        sentence: What it would do, with the values as they are now; see `WatcherSummary`.
        watcher: The request that makes it.
    """

    sentence: PhraseText
    watcher: dict[str, Json]


class CheckedPredicate(Phrased):
    """What another predicate would be worth now; see `Watchers.check`."""

    predicate: str | None
    note: PhraseText
    latest: dict[str, Json]
