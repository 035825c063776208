"""The supervision of nodes: started, started again when they end, stopped with all that they started."""

import asyncio
import hashlib
import json
import logging
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from agent_core.schemas.nearest import suggestion
from bus.processes import LONG, lines_of, output_of
from chat.tasks import happens
from contracts.errors import CallError, ErrorCode, FileProblem
from contracts.rates import TokenBucket
from identity.files import make_private_directory, write_private
from spoke import limits
from spoke.nodes.manifest import Manifest, node_folders, read_manifest, refuse_own
from spoke.nodes.node import Node, NodeStatus, Tell
from spoke.nodes.processes import TOO_FAST, Log, end_marked, has_systemd, started

_log = logging.getLogger(__name__)


class Nodes:
    """The nodes of this device. Made by `open_nodes`.

    Args:
        directory: The folder ``nodes``.
        data: Where logs and the list of those that shall run are kept.
    """

    def __init__(self, directory: Path, *, data: Path, tasks: asyncio.TaskGroup) -> None:
        self._directory = directory
        self._data = data
        self._id = hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:12]
        self._tasks = tasks
        self._nodes: dict[str, Node] = {}
        self._logs: dict[str, Log] = {}
        self._building: set[str] = set()
        # Of each node, what is begun before the last one has ended would be ended with it.
        self._changing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._units = False
        self.tell: Tell = lambda _: None

    async def resume(self) -> None:
        """Start those that shall run; end what an earlier process of the spoke could not end."""
        self._units = await asyncio.to_thread(has_systemd)
        for name in node_folders(self._directory):
            await end_marked(self._mark(name), stop_s=0)
        for name in self._wanted() & node_folders(self._directory).keys():
            self._begin(name)

    def all(self) -> list[NodeStatus]:
        return [self._status(name) for name in sorted(self.names())]

    def names(self) -> set[str]:
        return {*node_folders(self._directory), *self._nodes}

    async def start(self, name: str) -> NodeStatus:
        """Start a node, now and with the spoke from now on; one that runs goes on.

        Raises:
            CallError: If there is no such node, or it cannot be started.
        """
        self._manifest(name)
        async with self._changing[name]:
            return await self._start(name)

    async def _start(self, name: str) -> NodeStatus:
        node = self._nodes.get(name)
        if node is None or node.status.state in ("stopped", "failed") or node.is_ending:
            await self._end(name)
            node = self._begin(name)
        self._want(name, True)
        await node.begun.wait()
        if node.status.state == "failed":
            raise CallError(
                ErrorCode.SKILL_ERROR,
                f"{name} {node.status.reason}",
                hint=f"'strawberry nodes logs DEVICE {name}' shows what it wrote.",
            )
        return self._status(name)

    async def stop(self, name: str) -> NodeStatus:
        """Stop a node, with all processes that it started.

        Raises:
            CallError: If there is no such node, or it is protected.
        """
        self._refuse_protected(name, "stopped")
        async with self._changing[name]:
            self._want(name, False)
            await self._end(name)
            self.tell(self._status(name))
            return self._status(name)

    async def restart(self, name: str) -> NodeStatus:
        """Stop and start a node.

        Raises:
            CallError: As for `stop` and `start`.
        """
        self._manifest(name)
        self._refuse_protected(name, "restarted")
        async with self._changing[name]:
            await self._end(name)
            return await self._start(name)

    async def build(self, name: str) -> AsyncGenerator[str, None]:
        """Build a node, and yield what its build writes, line by line.

        Raises:
            CallError: If there is no such node, it has no build, or the build fails.
        """
        manifest = self._manifest(name)
        self._refuse_protected(name, "built")
        if manifest.build is None:
            raise CallError(
                ErrorCode.REFUSED,
                "{name} has no build",
                name=name,
                hint="Name one in its node.yaml: build: make",
            )
        if name in self._building:
            raise CallError(ErrorCode.BUSY, f"{name} is being built already")
        self._building.add(name)
        last = ""
        try:
            run = started(
                manifest.build,
                folder=self._directory / name,
                env=manifest.variables,
                mark=f"{self._mark(name)} build",
                stop_s=manifest.stop_s,
            )
            async with run as process, aclosing(lines_of(output_of(process.stdout))) as lines:
                async for line in lines:
                    last = line.strip() or last
                    yield line
                code = await process.wait()
        except OSError as error:
            raise CallError(
                ErrorCode.SKILL_ERROR, f"the build of {name} cannot be started: {error.strerror or error}"
            ) from None
        finally:
            self._building.discard(name)
        if code != 0:
            raise CallError(
                ErrorCode.SKILL_ERROR,
                "the build of {name} ended with code {status}",
                name=name,
                status=code,
                hint=last[:500],
            )

    def log(self, name: str, lines: int) -> list[str]:
        """Return the last lines that a node wrote.

        Raises:
            CallError: If there is no such node.
        """
        self._folder(name)
        return self._log_of(name).tail(lines)

    async def follow(
        self, name: str, lines: int, *, after: int | None = None
    ) -> AsyncGenerator[str | dict[str, int], None]:
        """Yield the last lines that a node wrote, those of the next minutes, and the position at the end.

        Where it writes too many at once, one line says that some are left out.

        Args:
            after: Position at which an earlier call ended, in place of the last lines.

        Raises:
            CallError: If there is no such node.
        """
        self._folder(name)
        log, limit, is_late = (
            self._log_of(name),
            TokenBucket(burst=limits.LOG_LINES_PER_SECOND, per_second=limits.LOG_LINES_PER_SECOND),
            False,
        )
        position = log.end if after is None else min(after, log.end)

        async def written() -> AsyncGenerator[bytes, None]:
            nonlocal position
            until = time.monotonic() + limits.LOG_FOLLOWED_S
            while (left_s := until - time.monotonic()) > 0:
                news, content = log.news, log.read(position)
                # What ends in the middle of a line is left for the next call, unless it is long.
                whole = content[: content.rfind(b"\n") + 1] or (content if len(content) > LONG else b"")
                position = log.end - (len(content) - len(whole))
                if whole:
                    yield whole
                else:
                    await happens(news, within_s=left_s)

        for line in self.log(name, lines) if after is None else ():
            yield line
        async with aclosing(lines_of(written())) as new:
            async for line in new:
                # Once late, half of the burst comes at once: not a line, then the mark, and so on.
                if limit.take(keep=limits.LOG_LINES_PER_SECOND / 2 if is_late else 0):
                    is_late = False
                    yield line
                elif not is_late:
                    is_late = True
                    yield TOO_FAST
        yield {"position": position}

    def _begin(self, name: str) -> Node:
        node = self._nodes[name] = Node(
            self._directory / name,
            log=self._log_of(name),
            mark=self._mark(name),
            unit=f"strawberry-node-{name}-{self._id}" if self._units else None,
            changed=lambda: self.tell(self._status(name)),
        )
        node.task = self._tasks.create_task(node.run(), name=f"node {name}")
        return node

    async def _end(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or node.task is None:
            return
        # Once: a second one would cut short the end of its processes.
        if not node.is_ending:
            node.task.cancel()
        await asyncio.wait([node.task])
        del self._nodes[name]

    def _status(self, name: str) -> NodeStatus:
        node = self._nodes.get(name)
        status = NodeStatus(name, "stopped") if node is None else node.status
        try:
            manifest = read_manifest(self._directory / name)
        except FileProblem as problem:
            return status if node is not None else NodeStatus(name, "broken", reason=problem.message)
        health = manifest.health
        return replace(
            status,
            description=manifest.description,
            health_topic=health.topic if health is not None else None,
            health_link=health.link if health is not None else None,
            health_every_s=health.every_s if health is not None else None,
            protected=manifest.protected,
            buildable=manifest.build is not None,
        )

    def _folder(self, name: str) -> Path:
        folders = node_folders(self._directory)
        if name not in folders:
            refuse_own(name)
            raise CallError(
                ErrorCode.BAD_ARGUMENTS, f"there is no node {name[:100]!r}", hint=suggestion(name, folders)
            )
        return folders[name]

    def _manifest(self, name: str) -> Manifest:
        try:
            return read_manifest(self._folder(name))
        except FileProblem as problem:
            raise CallError(ErrorCode.REFUSED, problem.message, hint=problem.hint) from None

    def _is_protected(self, name: str) -> bool:
        try:
            return self._manifest(name).protected
        except CallError:
            # What runs can be stopped also while its node.yaml is broken or gone.
            if (node := self._nodes.get(name)) is None:
                raise
            return node.protected

    def _refuse_protected(self, name: str, what: str) -> None:
        if self._is_protected(name):
            raise CallError(
                ErrorCode.REFUSED,
                "{name} is protected: it is {what} only at the machine itself",
                name=name,
                what=what,
                hint="Set 'protected: false' in its node.yaml there; that counts at once.",
            )

    def _log_of(self, name: str) -> Log:
        if name not in self._logs:
            self._logs[name] = Log(make_private_directory(self._data / "logs") / f"{name}.log")
        return self._logs[name]

    def _mark(self, name: str) -> str:
        return f"{self._id} {name}"

    def _wanted(self) -> set[str]:
        try:
            return set(json.loads((self._data / "running.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return set()

    def _want(self, name: str, is_wanted: bool) -> None:
        before = self._wanted()
        after = before | {name} if is_wanted else before - {name}
        if after != before:
            make_private_directory(self._data)
            write_private(self._data / "running.json", json.dumps(sorted(after)).encode())


@asynccontextmanager
async def open_nodes(directory: Path, *, data: Path) -> AsyncIterator[Nodes]:
    """Supervise the nodes in a folder for as long as the context is open; then none of them is left."""
    async with asyncio.TaskGroup() as tasks:
        nodes = Nodes(directory, data=data, tasks=tasks)
        await nodes.resume()
        try:
            yield nodes
        finally:
            for node in nodes._nodes.values():
                if node.task is not None:
                    node.task.cancel()
