"""Read-only methods that watchers ask for values at an interval."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from agent_core.schemas.arguments import check_arguments
from agent_core.search.catalogue import SkillCall
from agent_core.search.targets import AnyDirectory, find_path
from contracts.devices.presence import State
from contracts.devices.rpc import Actor
from contracts.errors import InvalidMessage, StrawberryError
from contracts.phrases import Phrase
from contracts.validation import did_you_mean
from hub_agent.calls.audit import Origin
from hub_live import limits
from hub_live.topics import Feed
from hub_live.watchers.decisions.approved import check_no_secret
from hub_live.watchers.decisions.evaluation import Evaluations
from hub_live.watchers.decisions.trace import Traces
from hub_live.watchers.definition import WatchedValue
from hub_live.watchers.tables import WatcherRow
from hub_live.watchers.values.watched import Watched
from hub_registry.storage.tables import now


def asked_call(source: WatchedValue, devices: AnyDirectory) -> SkillCall:
    """Return the call that gives a value.

    Args:
        devices: Those of the owner.

    Raises:
        CallError: If its path means nothing, or an argument does not fit.
        InvalidMessage: If its method may change something, or asks a person first.
    """
    target = find_path(devices, source.ask or "", current=None)
    flags = target.method.flags
    if not flags.read_only or flags.confirm:
        raise InvalidMessage(
            "{method} is not asked at an interval: it is not read-only, or asks a person first",
            method=target.path,
            hint="A watcher calls such a method by a step, or by a call that you approve.",
        )
    check_no_secret(target, source.arguments or {})
    return SkillCall(target, check_arguments(target.method, (), source.arguments or {}))


def check_single(source: WatchedValue, call: SkillCall) -> None:
    """Check that an answer can be compared, as far as the method declares it.

    Raises:
        InvalidMessage: If it is an object or a list and no field that it has is named.
    """
    schema = call.target.method.result or {}
    if reference := str(schema.get("$ref", "")).rpartition("/")[2]:
        schema = schema["$defs"][reference]
    fields = list(schema.get("properties", ()))
    wanted = (source.value or "").partition(".")[0]
    if schema.get("type") not in ("object", "array") or wanted in fields or (wanted and not fields):
        return
    near = did_you_mean(wanted, fields) or Phrase("; it has {names}", names=", ".join(fields))
    raise InvalidMessage(
        "{method} gives no single value{near}",
        method=call.target.path,
        near=near if fields else "",
        hint="Name a field of it in value: --value NAME=FIELD.",
    )


@dataclass(eq=False)
class Asks:
    """Asks methods, each once at a time, and publishes what they answer."""

    feed: Feed
    evaluations: Evaluations
    traces: Traces
    tasks: asyncio.TaskGroup
    _running: int = 0

    def start_due(self, watched: Watched, at: float, is_current: Callable[[], bool]) -> None:
        """Ask the methods of a watcher that are due.

        Args:
            is_current: Whether the watcher is still as it was; else nothing is published.
        """
        for name, source in watched.sources.items():
            is_due = source.ask is not None and watched.asks.get(name, 0.0) <= at
            if is_due and self._running < limits.ASKS_AT_ONCE:
                watched.asks[name] = math.inf
                self._running += 1
                asking = self._ask(watched, name, source, is_current)
                self.tasks.create_task(asking, name=f"{watched.row.name} asks for {name}")

    async def _ask(
        self, watched: Watched, name: str, source: WatchedValue, is_current: Callable[[], bool]
    ) -> None:
        try:
            payload = await self._answer(watched.row, source)
            if is_current():
                await self.feed.publish(source.topic, payload)
        except StrawberryError as error:
            problem = Phrase("{method} gave no value: {reason}", method=source.ask, reason=error.message)
            self.traces.add(watched.row.name, time.time(), problem)
        finally:
            self._running -= 1
            watched.asks[name] = time.time() + source.every_s

    async def _answer(self, row: WatcherRow, source: WatchedValue) -> bytes:
        user = await self.evaluations.registry.accounts.get(row.owner)
        call = asked_call(source, self.evaluations.registry.directory.seen_by(user.id))
        actor = Actor(user=user.id, watcher=row.name, read_only=True)
        value = await self.evaluations.manager.call(actor, call, origin=Origin())
        payload = State(value=value, at=now()).model_dump_json().encode()
        if len(payload) > limits.MOST_ASKED:
            raise InvalidMessage("its answer has {bytes:,} bytes", bytes=len(payload))
        return payload
