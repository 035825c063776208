"""Where an operation is done: here, at the leader, or at the replica that runs the turn."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

from pydantic import ValidationError
from sqlmodel import Session
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route

from chat.http.requests import answer
from chat.operations import Operation
from contracts.errors import LinkError, StrawberryError, Superseded
from hub_agent.calls.from_skills import SkillCallBody
from hub_agent.chat.record import ConversationRecord
from hub_agent.tables import TurnRow
from hub_registry.access.bearer import Bearer
from hub_registry.storage.replicas import Phase, Presence, Replica, Term
from hub_registry.storage.store import Store, fencing
from hub_registry.storage.tables import ReplicaRow
from hub_server import limits
from hub_server.leading import Leader
from hub_server.replicas.passing import From, Passing

_HERE: Final = ("calls", "cluster", "conversations", "prompt", "sentences", "turns", "audit")
"""Resources that each replica serves from the database and what it hears; all others are the leader's."""
_WITHIN: Final = "POST /api/skills/call/within"
_CALLS: Final = "/api/replicas/calls"
_OF_TURN: Final = ("POST /api/turns/{turn}/cancel", "POST /api/turns/{turn}/confirmations/{question}")


class Routing:
    """Knows the replicas, and passes on what this one does not do; see `chat.operations.Elsewhere`.

    Args:
        open_request: Returns what runs on a device under the id of a call of this replica, if anything.

    Attributes:
        presence: Which replicas there are.
    """

    def __init__(
        self,
        replica: Replica,
        leader: Leader,
        store: Store,
        record: ConversationRecord,
        passing: Passing,
        open_request: Callable[[str, str], object],
    ) -> None:
        self._open_request = open_request
        self._replica = replica
        self._leader = leader
        self._store = store
        self._record = record
        self._passing = passing
        self.forward, self.call, self.follow = passing.forward, passing.call, passing.follow
        self.presence = Presence(store)
        # Whose turns were ended.
        self._ended: set[str] = set()

    @property
    def leads(self) -> bool:
        return self._leader.parts is not None

    @property
    def restart_place(self) -> int:
        """Return which of the replicas that run this one is by name, from 1."""
        runs = filter(self.presence.runs, self.presence.rows)
        return 1 + sum(name < self._replica.instance for name in runs)

    async def confirm_lead(self) -> None:
        """Check that this replica leads, also where it was stopped until a moment ago.

        Raises:
            Superseded: If another one leads.
        """
        await self._term().confirm()

    def writing(self) -> AbstractContextManager[None]:
        """Return a context in which all writes are refused once another replica leads.

        Raises:
            Superseded: If another one leads.
        """
        return fencing(self._term().check)

    def _term(self) -> Term:
        if (term := self._replica.term) is None:
            raise Superseded("another replica of the hub leads by now")
        return term

    def leading_row(self) -> ReplicaRow | None:
        """Return the other replica that leads, as far as is known; None where this one does."""
        latest = max((row.term for row in self.presence.rows.values()), default=0)
        others = self._others() if self._replica.term is None else ()
        return next((row for row in others if 0 < row.term == latest), None)

    async def look(self) -> None:
        """Look which replicas there are; have turns end that a replica ran which is gone."""
        await self.presence.look()
        gone = {name for name in self.presence.rows if self.presence.phase(name) is Phase.GONE}
        self._ended &= gone
        for instance in gone - self._ended if self.leads else ():
            await self._record.clean_up(instance)
            self._ended.add(instance)

    def passes(self, operation: Operation[Any, Any]) -> bool:
        return operation.resource.name not in _HERE and not self.leads

    async def place(
        self,
        operation: Operation[Any, Any],
        asking: Bearer,
        given: Mapping[str, Any],
        request: Request | None = None,
    ) -> ReplicaRow | None:
        """See `chat.operations.Elsewhere`."""
        if operation.resource.name in _HERE:
            if isinstance(asking.connection, From):
                return None
            if operation.label in _OF_TURN:
                return await self.runs(asking.user.id, str(given["turn"]))
            if operation.label == _WITHIN:
                return await self._called_at(asking, request)
            return await self._confirmed_at(request) if operation.resource.name == "calls" else None
        if not self.passes(operation):
            if (term := self._replica.term) is not None:
                await term.confirm_after_stop()
            return None
        return await self.leader(asking.connection, may_be_here=not operation.needs.password)

    async def leader(self, request: HTTPConnection, *, may_be_here: bool = True) -> ReplicaRow | None:
        """Return the other replica that leads; None where this one leads by now.

        Args:
            request: One that another replica passed on is not passed on again; who has just gained the lead
                takes it once all is open.

        Raises:
            LinkError: If none leads for some seconds.
        """
        until = time.monotonic() + limits.LEADER_WAIT_S
        while time.monotonic() < until:
            if self._replica.term is None and isinstance(request, From):
                break
            if (row := self.leading_row()) is not None:
                return row
            if self.leads:
                if may_be_here:
                    return None
                break
            await asyncio.sleep(limits.LEADER_LOOK_S)
            await self.look()
        raise LinkError("no replica of the hub leads right now", hint="Try again in a moment.")

    def doing(self, operation: Operation[Any, Any]) -> AbstractContextManager[None]:
        return fencing(None) if operation.resource.name in _HERE else self.writing()

    async def runs(self, user: str, turn: str, *, ended: bool = False) -> ReplicaRow | None:
        """Return the other replica that runs a turn; of one that is gone it ends as interrupted.

        Args:
            ended: Also the one that ran a turn which has ended: it keeps the events for a while.
        """

        def work(session: Session) -> str | None:
            row = session.get(TurnRow, (user, turn))
            return row.instance if row is not None and (ended or row.state == "running") else None

        instance = await self._store.read(work)
        if instance in (None, "", self._replica.instance):
            return None
        await self.look()
        while (phase := self.presence.phase(instance)) is Phase.AWAY:
            await asyncio.sleep(limits.LEADER_LOOK_S)
            await self.look()
        if phase is Phase.GONE:
            await self._record.clean_up(instance)
            return None
        return self.presence.rows[instance]

    async def _confirmed_at(self, request: Request | None) -> ReplicaRow | None:
        """Return the other replica that has issued the confirmation of a call."""
        from pydantic_core import from_json

        if request is None or b"confirmation" not in (body := await request.body()):
            return None
        try:
            sent = from_json(body)
        except ValueError:
            return None
        confirmation = sent.get("confirmation") if isinstance(sent, dict) else None
        instance = confirmation.partition(".")[0] if isinstance(confirmation, str) else ""
        return next((row for row in self._others() if row.instance == instance), None)

    def _others(self) -> list[ReplicaRow]:
        running = (row for row in self.presence.rows.values() if self.presence.runs(row.instance))
        return [row for row in running if row.instance != self._replica.instance]

    async def _called_at(self, asking: Bearer, request: Request | None) -> ReplicaRow | None:
        """Return the other replica whose call runs on the device that calls within it."""
        try:
            body = SkillCallBody.model_validate_json(await request.body() if request is not None else b"")
        except ValidationError:
            return None
        device, call = asking.claims.sub, body.within
        if call is None or self._open_request(device, call) is not None:
            return None
        asked = {"device": device, "call": call}
        for row in self._others():
            with suppress(StrawberryError):
                if await self._passing.tell(row, _CALLS, asked):
                    return row
        return None

    def route(self) -> Route:
        # For replicas alone.
        return Route(_CALLS, self._answer_call, methods=["POST"])

    async def _answer_call(self, request: Request) -> Response:
        asked = await self._passing.internal(request)
        return answer(self._open_request(asked["device"], asked["call"]) is not None)
