"""Turns: ``/api/turns``, where the time of people's turns went, and those that a device hands in."""

from dataclasses import dataclass

from chat.operations import LOOK, Needs, Resource
from contracts.answers.record import TurnPage, TurnShown
from contracts.chat.messages import PushedTurns
from contracts.wire import Part, Timestamp
from hub_agent.calls.audit_log import AuditLog
from hub_agent.chat.assistant import key_of
from hub_agent.chat.record import ConversationRecord
from hub_agent.chat.traces import Traces, TurnFilter
from hub_registry.access.bearer import Bearer
from hub_registry.devices.directory import Directory
from hub_registry.storage.tables import AuditRow


class RecordedTurns(Part):
    """The turns of a device that the hub has now."""

    recorded: list[str]


class TurnChange(Part):
    """A call of a turn that changed something, or may have."""

    device: str
    skill: str
    method: str
    outcome: str
    at: Timestamp
    device_name: str


class TurnChanges(Part):
    """All of them, the oldest first."""

    changes: list[TurnChange]


@dataclass(frozen=True)
class Turns:
    """What is known of turns."""

    record: ConversationRecord
    traces: Traces
    log: AuditLog
    directory: Directory


turns: Resource[Turns, Bearer] = Resource("turns", "/api/turns")


@turns.post(Needs(("chat",), devices=True, people=False))
async def push(turns: Turns, asking: Bearer, pushed: PushedTurns) -> RecordedTurns:
    """Record turns that the device answered without the hub, at most 100.

    They are `TurnRecord`s, see `contracts/chat/messages.py`. Sending them again changes nothing.
    """
    device, key = asking.device, key_of(asking)
    # As the rights say that it needs.
    assert device is not None
    assert key is not None
    return RecordedTurns(recorded=await turns.record.take(asking.user.id, device, key, pushed.turns))


@turns.get(LOOK)
async def look(turns: Turns, asking: Bearer, wanted: TurnFilter) -> TurnPage:
    """List turns, newest first; see [Turns](#turns)."""
    return await turns.traces.page(wanted, user=asking.user.id, all_people=asking.is_admin)


@turns.get(LOOK, "/{turn}")
async def show(turns: Turns, asking: Bearer, turn: str) -> TurnShown:
    """Return one turn, with where its time went."""
    return await turns.traces.get(turn, user=asking.user.id, all_people=asking.is_admin)


@turns.get(LOOK, "/{turn}/changes")
async def changes(turns: Turns, asking: Bearer, turn: str) -> TurnChanges:
    """List the calls of a turn and of those after it in its conversation that changed something, or may have.

    `outcome` is `result`, or why it is not known.
    """
    user = asking.user.id
    found = await turns.log.changes(user, await turns.record.from_on(user, turn))
    return TurnChanges(changes=[_shown(each, turns.directory) for each in found])


def _shown(row: AuditRow, directory: Directory) -> TurnChange:
    entry = directory.get(row.device)
    name = row.device if entry is None else entry.display_name
    return TurnChange.model_validate(vars(row) | {"device_name": name}, extra="ignore")
