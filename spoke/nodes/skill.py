"""``NodesSkill``: the programs that run on this device."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field

from agent_core.skills.skill import Skill, skill_method
from chat.tasks import open_tasks
from identity.files import write_private
from spoke import limits
from spoke.nodes.manifest import is_node_name
from spoke.nodes.node import NodeStatus
from spoke.nodes.supervision import Nodes, open_nodes


class NodesSkill(Skill):
    """Programs that run on this device: start, stop, restart and build them, and read their logs."""

    labels = {
        "de": {
            "NodesSkill": "Programme",
            "list_nodes": "Alle Programme",
            "start_node": "Starten",
            "stop_node": "Stoppen",
            "restart_node": "Neu starten",
            "build_node": "Bauen",
            "get_logs": "Protokoll",
            "follow_logs": "Protokoll mitlesen",
            "after": "Nach",
        },
        "en": {
            "NodesSkill": "Programs",
            "list_nodes": "All programs",
            "start_node": "Start",
            "stop_node": "Stop",
            "restart_node": "Restart",
            "build_node": "Build",
            "get_logs": "Log",
            "follow_logs": "Follow the log",
        },
    }

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = AsyncExitStack()
        self._nodes: Nodes | None = None
        self._published: set[str] = set()

    async def setup(self) -> None:
        """Start the nodes that ran before."""
        nodes = await self._stack.enter_async_context(open_nodes(self._directory, data=self.data_dir))
        nodes.tell = self._tell
        self._nodes = nodes
        with suppress(OSError, ValueError, TypeError):
            self._published = set(json.loads((self.data_dir / "published.json").read_bytes()))
        for each in nodes.all():
            self._tell(each)
        self._clear_gone()
        tasks = await self._stack.enter_async_context(open_tasks())
        tasks.create_task(self._look(), name="nodes that come and go")

    async def close(self) -> None:
        await self._stack.aclose()

    @skill_method(read_only=True)
    async def list_nodes(self) -> list[NodeStatus]:
        """List the programs on this device, with state and health."""
        self._clear_gone()
        return self._opened.all()

    @skill_method(idempotent=True)
    async def start_node(self, name: str) -> NodeStatus:
        """Start a program; it is kept running, and started again with the device.

        Args:
            name: Name of the node, as list_nodes gives it.
        """
        return await self._opened.start(name)

    @skill_method(idempotent=True, timeout_s=150)
    async def stop_node(self, name: str) -> NodeStatus:
        """Stop a program with all that it started.

        Args:
            name: Name of the node.
        """
        return await self._opened.stop(name)

    @skill_method(timeout_s=150)
    async def restart_node(self, name: str) -> NodeStatus:
        """Stop and start a program.

        Args:
            name: Name of the node.
        """
        return await self._opened.restart(name)

    @skill_method(timeout_s=limits.LONG_CALL_S, untrusted_output=True)
    async def build_node(self, name: str) -> AsyncGenerator[str, None]:
        """Build a program, as its settings say; gives the last line that the build wrote.

        Args:
            name: Name of the node.
        """
        async with aclosing(self._opened.build(name)) as lines:
            async for line in lines:
                yield line

    @skill_method(read_only=True, untrusted_output=True)
    async def get_logs(self, name: str, lines: Annotated[int, Field(ge=1, le=1000)] = 50) -> list[str]:
        """Return the last lines that a program wrote.

        Args:
            name: Name of the node.
            lines: How many.
        """
        return self._opened.log(name, lines)

    # Few at once: those who follow must not keep others from stopping a program.
    @skill_method(read_only=True, untrusted_output=True, timeout_s=limits.LONG_CALL_S, concurrency=4)
    async def follow_logs(
        self,
        name: str,
        lines: Annotated[int, Field(ge=0, le=1000)] = 50,
        after: Annotated[int, Field(ge=0)] | None = None,
    ) -> AsyncGenerator[str | dict[str, int], None]:
        """Follow what a program writes, line by line, for some minutes; get_logs answers at once.

        Args:
            name: Name of the node.
            lines: How many of the last lines come first.
            after: In place of them, the position that an earlier call gave at its end.
        """
        async with aclosing(self._opened.follow(name, lines, after=after)) as written:
            async for line in written:
                yield line

    @property
    def _opened(self) -> Nodes:
        assert self._nodes is not None
        return self._nodes

    @property
    def _names(self) -> set[str]:
        return set(filter(is_node_name, self._opened.names()))

    def _tell(self, status: NodeStatus) -> None:
        if not is_node_name(status.name):
            return
        self.state(status.name, status.state)
        if status.health != "unknown":
            self.state(f"{status.name}.health", status.health)
        else:
            self.clear_state(f"{status.name}.health")
        if status.state in ("waiting", "failed"):
            self.emit("node", {"name": status.name, "state": status.state, "reason": status.reason})

    async def _look(self) -> None:
        """Publish the states of nodes that came, and clear those of nodes that are gone, until cancelled."""
        while True:
            await asyncio.sleep(limits.FOLDER_LOOK_S)
            for each in self._opened.all() if self._names - self._published else ():
                self._tell(each)
            self._clear_gone()

    def _clear_gone(self) -> None:
        """Clear the states of nodes that no longer exist, also of those that went while the spoke was off."""
        names = self._names
        for name in self._published - names:
            self.clear_state(name)
            self.clear_state(f"{name}.health")
        if names != self._published:
            with suppress(OSError):
                write_private(self.data_dir / "published.json", json.dumps(sorted(names)).encode())
        self._published = names
