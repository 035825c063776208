"""Programs of a device: their state, how to start and stop them, and their logs."""

from collections.abc import Awaitable, Callable
from functools import partial

from nicegui import ui

from contracts.answers.live import NodeSummary
from hub_live import nodes
from hub_web import limits
from hub_web.handlers import one_at_a_time
from hub_web.parts.layout import (
    Tone,
    Words,
    badge,
    code,
    note,
    problem,
    refilled,
    row,
    table,
)
from hub_web.texts import text
from hub_web.view import view


class Programs:
    """The programs of one device.

    Args:
        device: Its id.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._place = ui.element("div")
        self.show = one_at_a_time(self._read)

    async def _read(self) -> None:
        found = await view.api(nodes.list_nodes, self._device)
        with refilled(self._place):
            for each in found.problems:
                problem(each.problem)
            if not found.nodes and not found.problems:
                note(text("No programs: a folder with a node.yaml makes one."))
                return
            columns = [text("Program"), text("State"), text("Health"), text("Restarts"), ""]
            healths = {
                "healthy": text("works"),
                "unhealthy": text("does not work"),
                "unknown": text("not known"),
            }
            table(
                columns,
                [
                    [
                        node.name,
                        partial(_node_state, node),
                        healths.get(node.health, node.health),
                        str(node.restarts or 0),
                        partial(self._node, node),
                    ]
                    for node in found.nodes
                ],
                label=text("Programs"),
            )

    def _node(self, node: NodeSummary) -> None:
        words = {
            "start": text("Start"),
            "stop": text("Stop"),
            "restart": text("Restart"),
            "build": text("Build"),
        }

        def act(action: str) -> Callable[[], Awaitable[None]]:
            async def run() -> None:
                await view.api(nodes.act, node.device, node.name, action)
                await self.show()

            return run

        with row():
            running = node.state in ("running", "waiting")
            for action, label in words.items():
                if action == "build" and not node.buildable:
                    continue
                if action in (("start",) if running else ("stop", "restart")) or (
                    node.protected and action != "start"
                ):
                    continue
                view.button(label, act(action))
            view.button(text("Log"), partial(self._log, node), icon="subject", kind="flat")

    async def _log(self, node: NodeSummary) -> None:
        name = node.name
        with view.dialog(text("Log of {name}", name=name), wide=True, close=text("Close")):
            place = ui.element("div")

            async def read() -> None:
                most = limits.MOST_NODE_LINES
                lines = (await view.api(nodes.show_lines, node.device, name, lines=most)).lines
                with refilled(place):
                    if lines:
                        code("\n".join(lines), label=text("Log of {name}", name=name))
                    else:
                        note(text("It has written nothing yet."))

            await read()
            view.button(text("Read again"), read, icon="refresh")


def _node_state(node: NodeSummary) -> None:
    states: dict[str, tuple[str, Tone]] = {
        "running": (text("running"), "good"),
        "waiting": (text("is started again"), "warn"),
        "stopped": (text("stopped"), "plain"),
        "failed": (text("failed"), "bad"),
        "broken": (text("to be mended"), "bad"),
    }
    badge(*states.get(node.state, (node.state, "plain")))
    if node.reason:
        Words("p", text.message(node.reason), "sb-muted sb-small")
