"""The live home at the leader, as turns of other replicas use it: the hub's own skills, parts of prompts."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from agent_core.provenance import Prompt
from agent_core.search.catalogue import SkillCall
from agent_core.search.directory import HUB_KEY, RegisteredSkill
from agent_core.search.targets import find_target
from chat.http.requests import answer
from contracts.devices.registration import Registration
from contracts.devices.rpc import Actor
from contracts.errors import CallError, ErrorCode, NotFound, StrawberryError
from contracts.phrases import read_phrases, with_phrases
from contracts.wire import Json
from hub_agent.calls.audit import Origin
from hub_agent.calls.own_skills import OwnSkills
from hub_agent.prompt import Asked, PromptPart
from hub_registry.registry import Registry
from hub_registry.storage.tables import ReplicaRow
from hub_server import limits
from hub_server.leading import Leader
from hub_server.replicas.passing import Lost, Passing
from hub_server.replicas.routing import Routing

_log = logging.getLogger(__name__)

_SKILLS, _PROMPT = "/api/replicas/skills", "/api/replicas/prompt"
_HOW = ("confirmed", "untrusted", "has_read", "by_sentence")


class RemoteLive:
    """The live home of the leader, and what this replica serves of its own to others while it leads."""

    def __init__(
        self, registry: Registry, leader: Leader, own: OwnSkills, routing: Routing, passing: Passing
    ) -> None:
        self._registry = registry
        self._leader = leader
        self._own = own
        self._routing = routing
        self._passing = passing
        self._known: tuple[str, int] | None = None
        self._again = 0.0

    async def run(self) -> NoReturn:
        """Offer the skills of the leader, where another replica is that, until cancelled."""
        while True:
            try:
                await self._follow()
            except StrawberryError as error:
                _log.debug("the skills of the leader are asked for again: %s", error)
            await asyncio.sleep(limits.REPLICA_LOOK_S)

    async def _follow(self) -> None:
        row = self._routing.leading_row()
        known = (row.instance, row.term) if row is not None else None
        if known == self._known and time.monotonic() < self._again:
            return
        skills: Sequence[RegisteredSkill] = ()
        if row is not None:
            said = TypeAdapter(list[Registration]).validate_python(await self._passing.tell(row, _SKILLS))
            skills = [RegisteredSkill.of(each, "") for each in said]
        self._own.put_remote(skills, self._call)
        self._known, self._again = known, time.monotonic() + limits.REMOTE_SKILLS_S

    def _row(self) -> ReplicaRow:
        if (row := self._routing.leading_row()) is None:
            raise CallError(
                ErrorCode.OFFLINE,
                "no replica of the hub leads right now",
                hint="Try again in a moment.",
                device=HUB_KEY,
            )
        return row

    async def _call(self, actor: Actor, call: SkillCall, origin: Origin, conversation: str | None) -> Json:
        """Call a skill of the leader; what a call reports on the way is not passed on."""
        asked = {
            "actor": actor,
            "skill": call.target.skill,
            "method": call.target.method.name,
            "arguments": dict(call.arguments),
            "origin": vars(origin),
            "conversation": conversation,
            **{name: getattr(call, name) for name in _HOW},
        }
        row = self._row()
        with call.waiting():
            try:
                said = await self._passing.tell(row, _SKILLS, asked)
            except StrawberryError as error:
                code = ErrorCode.OUTCOME_UNKNOWN if isinstance(error, Lost) else ErrorCode.OFFLINE
                raise CallError(code, error.message, hint=error.hint, device=HUB_KEY) from None
        if (failed := said.get("error")) is not None:
            failed = read_phrases(failed)
            code, shown = ErrorCode(failed["code"]), failed.get("shown")
            raise CallError(code, failed["message"], hint=failed["hint"], device=HUB_KEY, shown=shown)
        result: Json = said["result"]
        return result

    async def part(self, name: str, asked: Asked) -> PromptPart | None:
        """Return what a part of the leader adds to a prompt; None where there is no leader."""
        if (row := self._routing.leading_row()) is None:
            return None
        said = {"name": name, "user": asked.user.id, "said": asked.said, "device": asked.device}
        try:
            async with asyncio.timeout(limits.REMOTE_PART_S):
                made = await self._passing.tell(row, _PROMPT, said)
        except (StrawberryError, TimeoutError):
            return None  # as where no model sees the live home: it still has the skills
        return None if made is None else PromptPart(Prompt(made["text"]), untrusted=made["untrusted"])

    def routes(self) -> list[BaseRoute]:
        """Make the routes that replicas alone may use."""
        return [
            Route(_SKILLS, self._offered, methods=["GET"]),
            Route(_SKILLS, self._run, methods=["POST"]),
            Route(_PROMPT, self._add, methods=["POST"]),
        ]

    async def _offered(self, request: Request) -> Response:
        await self._passing.internal(request)
        self._leader.live  # noqa: B018  raises where this one does not lead
        return answer([each.registration for each in self._own.offered])

    async def _run(self, request: Request) -> Response:
        body = await self._passing.internal(request)
        await self._routing.confirm_lead()
        try:
            target = find_target(self._registry.directory, HUB_KEY, body["skill"], body["method"])
            if not target.is_hub_own:
                raise NotFound("the hub has no skill {skill!r}", skill=body["skill"])
            how: dict[str, Any] = {name: bool(body[name]) for name in _HOW}
            with self._routing.writing():
                value = await self._own.call(
                    Actor.model_validate(body["actor"]),
                    SkillCall(target, body["arguments"], **how),
                    origin=Origin(**body["origin"]),
                    conversation=body["conversation"],
                )
        except CallError as error:
            said: dict[str, Any] = {"code": error.code.value, "message": error.message, "hint": error.hint}
            return answer({"error": with_phrases({**said, "shown": error.shown})})
        return answer({"result": value})

    async def _add(self, request: Request) -> Response:
        body = await self._passing.internal(request)
        user = await self._registry.accounts.get(body["user"])
        contribution = self._leader.live.contributions[body["name"]]
        made = await contribution(Asked(user, tuple(body["said"]), body["device"]))
        return answer(None if made is None else {"text": made.text, "untrusted": made.untrusted})
