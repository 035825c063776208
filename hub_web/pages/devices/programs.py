"""Programs of a device: their state, how to start and stop them, and their logs."""

from functools import partial

from nicegui import ui

from contracts.answers.live import NodeSummary
from hub_live import nodes
from hub_web import limits, sb
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
        self.show = sb.one_at_a_time(self._read)

    async def _read(self) -> None:
        found = await view.api(nodes.list_nodes, self._device)
        with sb.refilled(self._place):
            for each in found.problems:
                sb.problem(each.problem)
            if not found.nodes and not found.problems:
                sb.note(text("No programs: a folder with a node.yaml makes one."))
                return
            columns = [text("Program"), text("State"), text("Health"), text("Restarts"), ""]
            sb.table(columns, map(self._row, found.nodes), label=text("Programs"))

    def _row(self, node: NodeSummary) -> tuple[sb.Cell, ...]:
        healths = {
            "healthy": text("works"),
            "unhealthy": text("does not work"),
            "unknown": text("not known"),
        }
        health, restarts = healths.get(node.health, node.health), str(node.restarts or 0)
        return node.name, partial(_node_state, node), health, restarts, partial(self._tools, node)

    def _tools(self, node: NodeSummary) -> None:
        is_running = node.state in ("running", "waiting")
        may_end = not node.protected
        shown = {
            "start": (text("Start"), not is_running),
            "stop": (text("Stop"), is_running and may_end),
            "restart": (text("Restart"), is_running and may_end),
            "build": (text("Build"), node.buildable and may_end),
        }
        with sb.row():
            for action, (label, is_shown) in shown.items():
                if is_shown:
                    view.button(label, partial(self._act, node, action))
            view.button(text("Log"), partial(self._log, node), icon="subject", kind="flat")

    async def _act(self, node: NodeSummary, action: str) -> None:
        await view.api(nodes.act, node.device, node.name, action)
        await self.show()

    async def _log(self, node: NodeSummary) -> None:
        title = text("Log of {name}", name=node.name)
        with view.dialog(title, wide=True, close=text("Close")):
            place = ui.element("div")

            async def read() -> None:
                most = limits.MOST_NODE_LINES
                lines = (await view.api(nodes.show_lines, node.device, node.name, lines=most)).lines
                with sb.refilled(place):
                    if lines:
                        sb.code("\n".join(lines), label=title)
                    else:
                        sb.note(text("It has written nothing yet."))

            await read()
            view.button(text("Read again"), read, icon="refresh")


def _node_state(node: NodeSummary) -> None:
    states: dict[str, tuple[str, sb.Tone]] = {
        "running": (text("running"), "good"),
        "waiting": (text("is started again"), "warn"),
        "stopped": (text("stopped"), "plain"),
        "failed": (text("failed"), "bad"),
        "broken": (text("to be mended"), "bad"),
    }
    sb.badge(*states.get(node.state, (node.state, "plain")))
    if node.reason:
        sb.Words("p", text.message(node.reason), "sb-muted sb-small")
