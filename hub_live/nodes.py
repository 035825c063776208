"""The nodes of all spokes: ``/api/nodes``, and events when they end."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field

from agent_core.schemas.arguments import check_arguments
from agent_core.search.catalogue import SkillCall
from agent_core.search.directory import Found
from agent_core.search.targets import on_device
from chat.http.streams import HEARTBEAT_S
from chat.operations import Needs, Resource
from chat.tasks import open_tasks
from contracts import topics
from contracts.answers.live import (
    DeviceProblem,
    LostLines,
    NodeError,
    NodeEvent,
    NodeFailed,
    NodeList,
    NodeLogs,
    NodeProgress,
    NodeResult,
    NodeSummary,
)
from contracts.devices.rpc import Actor
from contracts.errors import InvalidMessage, NotFound, StrawberryError
from contracts.rates import TokenBuckets
from contracts.topics import is_exact
from contracts.wire import Json
from hub_agent.calls.audit import Origin
from hub_agent.calls.device_manager import DeviceManager
from hub_live import limits
from hub_live.events import Events
from hub_live.events.kinds import NodeData
from hub_live.topics import Feed, Sample, field
from hub_live.world.world import NODES
from hub_registry.access.bearer import Bearer
from hub_registry.devices.directory import Directory, Entry

_METHODS: Final = {each: f"{each}_node" for each in ("start", "stop", "restart", "build")}

_LONGEST: Final = 300


_Lines = Annotated[int, Field(ge=1, le=1_000)]
_After = Annotated[int, Field(ge=0)] | None


@dataclass(frozen=True)
class Nodes:
    """The nodes of all spokes, each reached by a call of its skill with the rights of who asks."""

    directory: Directory
    manager: DeviceManager
    feed: Feed

    async def all(self, bearer: Bearer, device: str | None = None) -> NodeList:
        """List the nodes of all devices, or of one, and why those of some are missing.

        Raises:
            CallError: If there is no such device.
        """
        directory = self.directory.seen_by(bearer.user.id)
        entries: list[Entry] = [directory.resolve(device)] if device is not None else directory.entries()
        having = [entry for entry in entries if NODES in entry.skills]
        asked = (self.call(bearer, entry.id, "list_nodes", {}) for entry in having)
        found: list[NodeSummary] = []
        problems: list[DeviceProblem] = []
        for entry, nodes in zip(having, await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(nodes, StrawberryError):
                problems.append(DeviceProblem(device=entry.key, problem=str(nodes)))
            elif isinstance(nodes, BaseException):
                raise nodes
            elif isinstance(nodes, list):
                found += await asyncio.gather(
                    *(
                        self._shown(entry, node)
                        for node in nodes[: limits.MOST_NODES]
                        if isinstance(node, dict)
                    )
                )
        return NodeList(nodes=found, problems=problems)

    async def call(
        self,
        bearer: Bearer,
        device: str,
        method: str,
        arguments: dict[str, Json],
        on_progress: Callable[[Json], None] | None = None,
    ) -> Json:
        """Call a method of the skill on a device.

        Raises:
            CallError: If there is no result.
            NotFound: If the device has no nodes.
        """
        directory = self.directory.seen_by(bearer.user.id)
        entry = directory.resolve(device)
        if NODES not in entry.skills:
            raise NotFound(
                "{name} has no nodes",
                name=entry.display_name,
                hint="Make the folder nodes in its data directory.",
            )
        found: Found[Entry] = directory.find_on(entry, NODES, method)
        target = on_device(found)
        checked = check_arguments(target.method, [], arguments)
        actor = Actor(user=bearer.user.id, device=bearer.device, read_only=bearer.user.read_only)
        origin = Origin.of(bearer.claims)
        return await self.manager.call(
            actor, SkillCall(target, checked, on_progress=on_progress), origin=origin
        )

    async def _shown(self, entry: Entry, node: dict[str, Any]) -> NodeSummary:
        """Return a node as clients see it, with the health that its topic shows."""
        topic, link, every_s = (node.pop(f"health_{each}", None) for each in ("topic", "link", "every_s"))
        # A device says what it likes: what is no topic and no number of seconds tells nothing.
        node |= {key: str(node.get(key, ""))[:_LONGEST] for key in ("name", "state", "reason", "health")}
        for key, kind in (("since", str), ("restarts", int), ("buildable", bool), ("protected", bool)):
            if not isinstance(node.get(key), kind):
                node.pop(key, None)
        if node["state"] == "running" and node["health"] == "unknown":
            samples = []
            if isinstance(topic, str) and isinstance(every_s, (int, float)) and is_exact(topic):
                with suppress(InvalidMessage, NotFound):
                    heard = await self.feed.fetch(topic, "home" if link == "home" else "bus")
                    samples = [each for each in heard if not each.retained]
            age_s = time.time() - max((each.at for each in samples), default=0)
            if samples:
                node["health"] = "healthy" if age_s <= every_s else "unhealthy"
        return NodeSummary.model_validate({**node, "device": entry.key, "device_name": entry.display_name})


@asynccontextmanager
async def node_events(
    events: Events, directory: Directory, feed: Feed, *, tasks: asyncio.TaskGroup
) -> AsyncIterator[None]:
    """Publish an event for the owner of a device whenever one of its nodes ends, within the block."""
    rates = TokenBuckets(burst=limits.NODE_EVENTS, per_second=limits.NODE_EVENTS / 3600)

    def hear(sample: Sample) -> None:
        device = (topics.EVENT.match(sample.topic) or {}).get("device", "")
        entry, data = directory.get(device), field(sample.value, "data")
        if entry is None or not isinstance(data, dict) or not rates.take(device):
            return
        said: dict[str, Any] = {key: str(data.get(key, ""))[:_LONGEST] for key in ("name", "state", "reason")}
        subject = f"{said['name']} on {entry.display_name}"
        event = NodeData(subject=subject, device=entry.id, key=entry.key, **said)
        tasks.create_task(events.publish(entry.device.owner, event), name="event of a node")

    with feed.follow(topics.EVENT.filter(name="node"), hear):
        yield


nodes: Resource[Nodes, Bearer] = Resource("nodes", "/api/nodes")

_CALL: Final = Needs(("call",), devices=True)
"""Without a model in between it is a call like any other."""


@nodes.get(Needs(("chat", "call")), is_held=True)
async def list_nodes(
    nodes: Nodes, asking: Bearer, device: Annotated[str | None, Field(max_length=64)] = None
) -> NodeList:
    """List the nodes of all devices; see [Nodes](live.md#nodes)."""
    return await nodes.all(asking, device)


@nodes.get(_CALL, "/{device}/{name}/logs")
async def show_lines(
    nodes: Nodes,
    asking: Bearer,
    device: str,
    name: str,
    lines: _Lines = 50,
    after: _After = None,
) -> NodeLogs:
    """Return the last lines that the program wrote.

    With `follow=true` these lines and each new one as `{"progress"}`, `{"lost": n}` if `n` lines came
    too fast to be sent, at the end `{"result": {"position"}}` or `{"error": {"message", "hint"}}`, then
    `[DONE]`.

    Args:
        after: Of a stream, the position where an earlier one ended.
    """
    return NodeLogs(lines=await nodes.call(asking, device, "get_logs", {"name": name, "lines": lines}))


@nodes.stream(_CALL, "/{device}/{name}/logs", switch="follow", marks_end=True)
async def follow_lines(
    nodes: Nodes, asking: Bearer, device: str, name: str, lines: _Lines = 50, after: _After = None
) -> AsyncIterator[NodeEvent | None]:
    """Yield the last lines that the program wrote, and each new one."""
    arguments: dict[str, Json] = {"name": name, "lines": lines} | ({} if after is None else {"after": after})
    return _following(nodes, asking, device, "follow_logs", arguments)


@nodes.post(_CALL, "/{device}/{name}/{action}", is_held=True)
async def act(nodes: Nodes, asking: Bearer, device: str, name: str, action: str) -> NodeResult:
    """Run `start`, `stop`, `restart` or `build` on a node."""
    return NodeResult(result=await nodes.call(asking, device, _method(action), {"name": name}))


@nodes.stream(_CALL, "/{device}/{name}/{action}", method="POST", marks_end=True)
async def follow_act(
    nodes: Nodes, asking: Bearer, device: str, name: str, action: str
) -> AsyncIterator[NodeEvent | None]:
    """With `Accept: text/event-stream` likewise, with each line of a build.

    Then `{"result"}` or `{"error": {"message", "hint"}}`, and `[DONE]`.
    """
    return _following(nodes, asking, device, _method(action), {"name": name})


def _method(action: str) -> str:
    if action not in _METHODS:
        raise NotFound(
            "nodes have no {action!r}",
            action=action,
            actions=", ".join(_METHODS),
            hint="They have {actions}.",
        )
    return _METHODS[action]


async def _following(
    nodes: Nodes, bearer: Bearer, device: str, method: str, arguments: dict[str, Json]
) -> AsyncIterator[NodeEvent | None]:
    """Call a method, and yield its progress and its result."""
    waiting: asyncio.Queue[NodeEvent] = asyncio.Queue()
    lost = 0

    def report(value: Json) -> None:
        nonlocal lost
        if waiting.qsize() < limits.LOG_LINES_WAITING:
            waiting.put_nowait(NodeProgress(progress=value))
        else:
            lost += 1

    async def call() -> None:
        try:
            result = await nodes.call(bearer, device, method, arguments, report)
        except StrawberryError as error:
            waiting.put_nowait(NodeFailed(error=NodeError(message=error.message, hint=error.hint)))
        else:
            waiting.put_nowait(NodeResult(result=result))

    async with open_tasks() as tasks:
        tasks.create_task(call(), name=f"{method} of {arguments['name']}")
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    told = await waiting.get()
            except TimeoutError:
                yield None
                continue
            if lost:
                count, lost = lost, 0
                yield LostLines(lost=count)
            yield told
            if not isinstance(told, NodeProgress):
                break
