"""The system: health, versions, the log, backup and restore."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from nicegui import ui
from pydantic import SecretStr

from contracts.answers.system import ClusterMember
from contracts.errors import InvalidMessage, StrawberryError
from contracts.phrases import for_people
from contracts.wire import rfc3339
from hub_agent.bus.connection import BusHealth
from hub_agent.settings import BusKind
from hub_server.system import first_steps, operations
from hub_server.system.cluster import status
from hub_server.system.host import CheckAnswer
from hub_server.system.logs import ShownLine
from hub_server.system.operations import RestorableBackup, SystemState
from hub_web import limits, sb
from hub_web.parts.calls.forms import choice, switch, text_field
from hub_web.parts.files import FileField, in_browser
from hub_web.parts.household import show_household
from hub_web.parts.network import show_lan as show_access
from hub_web.parts.network import show_restart
from hub_web.shell import page
from hub_web.texts import size, text
from hub_web.view import view


@page("/system", title="System", icon="monitor_heart", menu=310, admin=True)
async def system() -> None:
    """Show how everything is, and what can be done about it."""
    found = await view.api(operations.show_system)
    view.link(text("First steps of a new home"), "/first-steps")
    with sb.grid(least=300):
        _hub(found)
        _links(found)
        _stores(found)
    with sb.card(text("Access from other machines"), icon="wifi"):
        show_access(await view.api(first_steps.show_lan), can_end=True)
    with sb.card(text("Your home"), icon="home"):
        show_household(await view.api(first_steps.show_household))
    members = await view.api(status)
    for kind, title in (("replica", text("Replicas of the hub")), ("node", text("Nodes of NATS"))):
        if found_of_kind := [each for each in members if each.kind == kind]:
            with sb.card(title, icon="hub"):
                if kind == "replica":
                    copied = text(
                        "Pages write settings on the machine that leads. Copy strawberry.toml and .env to "
                        "the others, and restart them for place, time zone and access from other machines."
                    )
                    sb.note(copied)
                _members(found_of_kind)
    with sb.card(text("Checks"), icon="fact_check") as tools:
        place = sb.stack()

        async def check() -> None:
            try:
                checks = await view.api(operations.list_checks)
                show: Callable[[], object] = partial(_checks, checks)
            except StrawberryError as error:
                show = partial(sb.failure, error)
            with sb.refilled(place):
                show()

        with tools:
            view.tool("refresh", text("Check again"), check)
    with sb.grid(least=420):
        _backup()
        _restore()
    _log()
    with place:
        sb.named(ui.skeleton(height="120px"), text("Working"))
    view.run(check(), name="checks")


def _hub(found: SystemState) -> None:
    with sb.card("Hub", icon="hub"):
        sb.dot("good", text("runs since {time}", time=view.at(found.started_at)))
        sb.facts(
            (text("Version"), found.version),
            (text("Memory in use"), f"{text.number(found.memory_mb)} MB"),
            (text("Python"), f"{found.python}, {found.system}"),
            (text("Files"), found.home),
        )


def _members(found: list[ClusterMember]) -> None:
    for each in found:
        with sb.stack():
            told = {
                "leads": text("{name} leads", name=each.name),
                "serves": text("{name} serves", name=each.name),
                "gone": text("{name} is gone", name=each.name or each.url),
            }
            sb.dot("good" if each.bus else "warn" if each.state != "gone" else "bad", told[each.state])
            seen = "" if each.seen_s is None else text("{n} s ago", n=text.number(each.seen_s))
            sb.facts(
                (text("Leads since"), view.at(each.leads_since) if each.leads_since else ""),
                (text("Term"), str(each.term or "")),
                (text("Last seen"), seen),
                (text("Address"), each.url if each.kind == "node" else ""),
                (text("Connections"), "" if each.clients is None else text.number(each.clients)),
                (text("Bus"), "" if each.bus else text("not connected")),
                (text("Stored"), "" if each.bytes is None else size(each.bytes)),
                (text("Version"), each.version),
            )


def _links(found: SystemState) -> None:
    with sb.card(text("Brokers"), icon="sync_alt"):
        for name, link in ((text("Bus"), found.broker), (text("Home broker"), found.home_broker)):
            if link is None:
                continue
            with sb.stack():
                if link.connected:
                    sb.dot("good", text("{name} is connected", name=name))
                else:
                    sb.dot("bad", text("{name} is not connected", name=name))
                kinds: dict[BusKind, str] = {
                    "embedded": text("embedded"),
                    "mosquitto": "Mosquitto",
                    "emqx": "EMQX",
                    "nats": "NATS",
                    "shared": text("shared with others"),
                }
                sb.facts(
                    (text("Kind"), kinds[link.kind] if isinstance(link, BusHealth) else ""),
                    ("MQTT", link.mqtt or ""),
                    (text("Problem"), text.message(link.error or "") if not link.connected else ""),
                )


def _stores(found: SystemState) -> None:
    pool, database = found.sandbox, found.database
    with sb.card(text("Sandbox and database"), icon="inventory_2"):
        if pool is None:
            sb.dot("warn", text("The sandbox is not ready"))
        else:
            sb.dot("good", text("The sandbox is ready"))
        sb.facts(
            (text("Processes"), text("{n} of {most}", n=pool.processes, most=pool.most) if pool else ""),
            (text("Programs"), str(pool.busy) if pool else ""),
            (text("Waiting"), str(pool.waiting or "") if pool else ""),
            (text("Database"), "PostgreSQL" if database.bytes is None else size(database.bytes)),
            (text("Revision"), database.revision),
        )


def _checks(checks: list[CheckAnswer]) -> None:
    wrong = [each for each in checks if not each.ok]
    if not wrong:
        sb.dot("good", text("Everything works."))
    else:
        sb.dot("bad", text.count(len(wrong), "{n} thing does not work", "{n} things do not work"))
        _check_list(wrong)
    with sb.folded(text.count(len(checks) - len(wrong), "{n} check passed", "{n} checks passed")):
        _check_list([each for each in checks if each.ok])


def _check_list(checks: list[CheckAnswer]) -> None:
    with ui.element("ul").classes("sb-checks"):
        for each in checks:
            with ui.element("li"):
                tone: sb.Tone = "good" if each.ok else "bad"
                state = ui.icon("check_circle" if each.ok else "error").classes(f"sb-check sb-{tone}")
                sb.named(state.props("role=img"), text("works") if each.ok else text("does not work"))
                with ui.element("div"):
                    with sb.row():
                        sb.Words("span", text.message(each.check), "sb-strong")
                        sb.Words("span", text.message(each.detail), "sb-muted")
                    if hint := for_people(each.hint):
                        sb.Words("p", text.message(hint), "sb-small")


# -- backup -----------------------------------------------------------------------------------------------


def _backup() -> None:
    with sb.card(text("Backup"), icon="archive"):
        sb.note(
            text(
                "One encrypted file with everything: people, devices, conversations, memory, keys and "
                "settings. Without its passphrase it cannot be opened, not even by you."
            )
        )
        first = _secret(text("Passphrase"), hint=text("Four or more words that only you know"))
        again = _secret(text("Passphrase, once more"))
        captures = switch(text("With captures and recorded values"))

        async def download() -> None:
            if first.value != again.value:
                raise InvalidMessage(text("The two passphrases differ"))
            body = {"passphrase": first.value, "captures": bool(captures.value)}
            await in_browser("save", "/api/system/backup", body)
            first.value = again.value = ""
            view.notify(text("The backup is made"))

        with sb.actions():
            view.button(text("Download backup"), download, icon="download", kind="primary")


def _secret(label: str, *, hint: str = "") -> ui.input | ui.textarea:
    # No browser may fill in the password of the page.
    return text_field(label, hint=hint, secret=True).props("autocomplete=new-password")


def _restore() -> None:
    with sb.card(text("Restore"), icon="settings_backup_restore"):
        sb.note(
            text(
                "The file is checked first, and you see what is in it. What is here now is kept in the "
                "folder “replaced”."
            )
        )
        file = FileField(text("Backup file"))
        passphrase = _secret(text("Its passphrase"))

        async def check() -> None:
            if not passphrase.value:
                raise InvalidMessage(text("Type the passphrase of the backup"))
            await file.send("/api/system/restore")
            secret = SecretStr(passphrase.value)
            _decide(await view.api(operations.restore, secret), secret)

        with sb.actions():
            view.button(text("Check the file"), check, icon="fact_check")


def _decide(found: RestorableBackup, passphrase: SecretStr) -> None:
    """Show what a backup holds, and ask whether it takes the place of what is here."""
    kept: dict[str, ui.switch] = {}

    async def apply() -> None:
        revoke = [device for device, each in kept.items() if not each.value]
        ui.run_javascript("strawberry.expectAnotherHub()")
        await view.api(operations.restore, passphrase, apply=True, revoke=revoke)
        box.close()
        then = text("This takes some seconds. Then log in with your password of the backup.")
        show_restart(text("The hub restarts with the backup"), then)

    with view.dialog(text("Restore this backup?"), wide=True) as box:
        files = text.count(found.files, "{n} file", "{n} files")
        made = datetime.fromisoformat(found.created_at)
        sb.facts(
            (text("Made"), f"{view.at(made)} ({view.ago(made)})"),
            (text("By"), f"Strawberry {found.version}"),
            (text("People"), ", ".join(found.people)),
            (text("Conversations"), text.number(found.conversations)),
            (text("Size"), f"{size(found.bytes)}, {files}"),
        )
        for each in found.problems:
            sb.problem(text("Something in it will not work here"), each)
        if found.devices:
            sb.heading(text("Devices that connect again"), level=3)
            sb.note(
                text("Turn off those that were lost or revoked since then: a backup cannot know."),
                classes="sb-small",
            )
            with sb.grid(least=200):
                for device in found.devices:
                    kept[device.id] = switch(device.name, True)
        sb.note(
            text(
                "Everybody is logged out, unless this hub is the one of the backup; programs then need "
                "new tokens. The hub restarts."
            ),
            classes="sb-small",
        )
        if not found.can_restart:
            sb.problem(
                text("This hub cannot restart by itself"),
                text("Restore the file on its machine, as the manual says under “Restoring”."),
            )
        with sb.actions():
            view.button(text("Cancel"), box.close, kind="flat")
            restore = view.button(text("Restore and restart"), apply, kind="danger")
            restore.set_enabled(found.can_restart)


# -- log --------------------------------------------------------------------------------------------------


def _log() -> None:
    levels = {
        "info": text("everything"),
        "warning": text("warnings and errors"),
        "error": text("errors only"),
    }
    with sb.card(text("Log"), icon="subject") as tools:
        with tools:
            level = choice(text("Show"), levels, "info").classes("sb-log-level")
        frame = ui.element("div").classes("sb-log").props("tabindex=0 role=log aria-live=off")
        with sb.named(frame, text("Log")):
            lines = ui.element("ol")
        quiet = sb.note(text("Nothing was logged since the hub started."))
        stop = None

        def show(line: ShownLine) -> None:
            quiet.set_visibility(False)
            with lines, ui.element("li").classes(f"sb-log-{line.level}"):
                sb.Words("time", view.at(line.at), title=rfc3339(line.at))
                sb.Words("span", line.level, "sb-log-word")
                sb.cut("span", line.logger, "sb-muted")
                sb.Words("span", line.text, "sb-log-text")
            while len(lines.default_slot.children) > limits.LOG_LINES_SHOWN:
                lines.remove(0)
            frame.run_method("scrollTo", 0, 1_000_000)

        def follow() -> None:
            nonlocal stop
            if stop is not None:
                stop()
            lines.clear()
            quiet.set_visibility(True)
            with lines:
                wanted = {"level": level.value, "last": limits.LOG_LINES_SHOWN}
                stop = view.follow(partial(view.api.follow, operations.follow_lines, **wanted), show)

        level.on_value_change(follow)
        follow()
