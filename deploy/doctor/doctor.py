"""Looks at everything a user can mend, and says how."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pydantic import TypeAdapter

from contracts.errors import SandboxMissing, StrawberryError
from contracts.phrases import Phrase
from deploy import limits
from deploy.directory import Home
from deploy.doctor import checks
from deploy.doctor.checks import Check, failed, passed
from deploy.service.plan import KINDS
from deploy.service.systemd import ServiceState, Systemd
from deploy.settings.settings import (
    check_settings,
    find_database,
    read_embeddings,
    read_household,
    read_models,
)

if TYPE_CHECKING:
    from contracts.answers.system import LinkHealth

T = TypeVar("T")

_NO_MODEL: Final = "none configured: only declared sentences act"
_FETCHES: Final = "fetches it where Deno is installed (pip install 'strawberry-home[sandbox]')"
_NO_HUB_YET: Final = f"'strawberry up' {_FETCHES}; a machine that only joins a hub needs none"
_WITHOUT_HUB_DB: Final = (
    "the hub then starts without devices, tokens and conversations, and every device joins again."
)
_WITHOUT_SPOKE_DB: Final = "messages from this device that the hub does not have yet are then lost."
_SPOKE_WITHOUT: Final = f"models get skills as tools of their own; 'strawberry spoke run' {_FETCHES}"


class Ask(Protocol):
    """Returns what the hub answers at a path; raises ``StrawberryError`` where it does not."""

    def __call__(self, path: str, kind: type[T] | TypeAdapter[T], /) -> T:
        """Ask."""


def examine(home: Home, *, ask: Ask, elsewhere: bool = False, from_inside: bool = False) -> Iterator[Check]:
    """Look at this installation, one thing after another.

    Args:
        ask: Asks the hub.
        elsewhere: Whether the hub is one that was named, so that nothing is known of it here.
        from_inside: Whether the hub itself asks, which knows how its sandbox is.
    """
    yield checks.check_python()
    is_spoke = not elsewhere and home.is_spoke_alone
    yield from checks.check_memory(hub=not is_spoke)
    yield checks.check_directory(home.directory, room_mb=limits.ROOM_SPOKE_MB if is_spoke else limits.ROOM_MB)
    if home.directory.is_file():
        return
    yield from _databases(home)
    if home.has_hub:
        yield _key(home)
    if is_spoke:
        yield from _headless(home)
    else:
        yield checks.check_isolation()
        if not from_inside:
            yield _sandbox(home, without=_NO_HUB_YET if not home.has_hub else "")
        yield from _settings(home)
        yield from _edited(home)
        yield from _certificates(home)
        yield from _hub(ask, to_join=not elsewhere and not home.has_hub)
    yield from _services()


def _databases(home: Home) -> Iterator[Check]:
    if isinstance(place := find_database(home), str):
        from hub_registry.access.hub_key import is_empty, shown
        from hub_registry.storage.store import opened

        try:
            # Tables without a key would keep the hub from its first start.
            if not is_empty(place):
                opened(place).close()
        except StrawberryError as error:
            yield failed("database", error.message, error.hint)
        else:
            yield passed("database", Phrase("{database} answers", database=shown(place)))
    for path in (home.hub / "hub.db", *sorted(home.spoke.glob("*.db"))):
        if path.exists():
            hint = _WITHOUT_HUB_DB if path.parent == home.hub else _WITHOUT_SPOKE_DB
            yield checks.check_database(path, hint=hint)


def _key(home: Home) -> Check:
    """Look at the identity of the hub, without which it does not start."""
    from hub_registry.access.hub_key import load_hub_key

    try:
        key = load_hub_key(home.hub, find_database(home))
    except StrawberryError as error:
        return failed("hub key", error.message, error.hint)
    return passed("hub key", key.kid)


def _headless(home: Home) -> Iterator[Check]:
    """Look at a machine that has joined a hub and runs none."""
    from deploy.doctor.spoke_checks import check_spoke, read_enrolment

    found = list(_settings(home, hub=False))
    yield from found
    if any(each.check == "models" and each.detail != _NO_MODEL for each in found):
        yield _sandbox(home, without=_SPOKE_WITHOUT)
    try:
        enrolment = read_enrolment(home)
    except StrawberryError as error:
        yield failed("token", error.message, error.hint)
        return
    if enrolment is not None:
        yield from check_spoke(home, enrolment)


def _sandbox(home: Home, *, without: str) -> Check:
    """Run a program for real.

    Args:
        without: How it goes where no sandbox was installed; empty where that is a fault.
    """
    from sandbox_host import PoolSettings, find, open_pool

    async def no_calls(path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        raise StrawberryError("there is no address {path}", path=path)

    async def run() -> str:
        await find(home.sandbox)
        async with (
            asyncio.timeout(limits.SANDBOX_CHECK_S),
            open_pool(PoolSettings(home.sandbox, spares=0)) as pool,
        ):
            result = await (await pool.session("doctor")).run("6 * 7", no_calls)
        return "" if result.value == 42 else result.problem or result.traceback or "it gives a wrong result"

    try:
        problem, hint = asyncio.run(run()), ""
    except SandboxMissing as error:
        if without:
            return passed("sandbox", Phrase("none: {without}", without=without))
        problem, hint = error.message, error.hint
    except StrawberryError as error:
        problem, hint = error.message, error.hint
    except TimeoutError:
        problem, hint = (
            Phrase("it took longer than {seconds:.0f} s", seconds=limits.SANDBOX_CHECK_S),
            "Is this machine busy with something else?",
        )
    if problem:
        return failed("sandbox", problem, hint or "'strawberry up' fetches it.")
    return passed("sandbox", "unchanged, and runs programs")


def _settings(home: Home, *, hub: bool = True) -> Iterator[Check]:
    try:
        check_settings(home, hub=hub)
        models, household = read_models(home), read_household(home)
    except StrawberryError as error:
        yield failed("settings", error.message, error.hint)
        return
    secrets = home.directory / ".env"
    if os.name == "posix" and secrets.exists() and secrets.stat().st_mode & 0o077:
        detail = "other users can read this file; a copy has the same permissions"
        yield passed(".env", detail, f"chmod 600 {secrets}")
    detail = f"{household.language}, {household.time_zone}, {household.units}"
    yield passed("household", detail)
    if hub and home.has_hub:
        yield checks.check_search(has_model=read_embeddings(home) is not None)
    yield from checks.check_voice(home)
    for problem in models.problems:
        yield failed("model", problem, models.hint)
    names = ", ".join(model.entry.name for model in models.usable)
    if names:
        yield passed("models", names)
    elif not models.problems:
        yield passed("models", _NO_MODEL, models.hint if hub else "")


def _edited(home: Home) -> Iterator[Check]:
    """Look at the files that people edit, where there are some."""
    soul, memory, agents = home.hub / "SOUL.md", home.hub / "MEMORY.md", home.directory / "agents"
    servers = home.directory / "mcp.json"
    if not (soul.exists() or memory.exists() or agents.is_dir() or servers.exists()):
        return
    from agent_core.files.edited_file import EditedFile
    from hub_agent.agents.agent import read_files
    from hub_agent.prompt.soul import open_soul
    from hub_live.memory.markdown import parse
    from hub_server.mcp.clients import open_file

    files: dict[str, EditedFile[Any]] = {
        soul.name: open_soul(home.hub),
        memory.name: EditedFile(memory, parse, absent=()),
        servers.name: open_file(home.directory),
        **{Phrase("agent {name}", name=name): file for name, file in read_files(home.directory).items()},
    }
    for name, file in files.items():
        if (problem := file.problem) is not None:
            yield failed(name, problem.message, problem.hint)
        elif file.path.exists():
            detail = "read again whenever it changes"
            if name.startswith("agent "):
                detail = "read again whenever it changes; 'strawberry agents check' looks closer"
            yield passed(name, detail)


def _certificates(home: Home) -> Iterator[Check]:
    """Look at the server certificate, where one was made."""
    from deploy.certificate import days_left, load_certificate

    try:
        certificate = load_certificate(home)
    except StrawberryError as error:
        yield failed("certificates", error.message, error.hint)
        return
    if certificate is None:
        yield passed("certificates", "none: other machines come in with --lan, which makes them")
        return
    days = days_left(certificate)
    yield Check(
        "certificates",
        ok=days > 0,
        detail=Phrase("good for {days} days", days=days)
        if days > 0
        else "the server certificate has expired",
        hint="" if days > 0 else "'strawberry certs' makes a new one; then start the hub again.",
    )


def _hub(ask: Ask, *, to_join: bool) -> Iterator[Check]:
    # Here: a machine that only joins a hub goes without what they import.
    from broker import limits as broker_limits
    from contracts.answers.devices import BusClient, DeviceAnswer
    from contracts.answers.people import TokenSummary
    from contracts.answers.system import ClusterMember, McpServers
    from hub_server.system.host import Health, PublicHealth

    either: TypeAdapter[Health | PublicHealth] = TypeAdapter(Health | PublicHealth)
    try:
        state = ask("/api/health", either)
    except StrawberryError as error:
        other = " If the hub is another machine: 'strawberry spoke join'." if to_join else ""
        yield failed("hub", error.message, f"{error.hint}{other}")
        return
    if isinstance(state, PublicHealth):
        hint = "'strawberry tokens add' at the hub makes one; --token-file names it here."
        detail: str = Phrase("its state is {state}; it says more to a valid token only", state=state.status)
        yield Check("hub", ok=state.status == "ok", detail=detail, hint=hint)
        return
    yield passed("hub", Phrase("version {version}", version=state.version))
    yield _link("broker", state.broker, hint="Is it running? 'strawberry broker check' tells what is wrong.")
    for name, share in (state.broker.fill or {}).items():
        if share > broker_limits.NATS_FULL_SHARE:
            detail = Phrase(
                "what NATS stores ({name}) is {percent} % full", name=name, percent=int(100 * share)
            )
            hint = "Remove devices that retain too much, then run 'strawberry purge'."
            yield failed("broker", detail, hint)
    with suppress(StrawberryError):
        yield from checks.check_cluster(ask("/api/cluster", list[ClusterMember]))
    if state.home_broker is None:
        yield passed("home broker", "none: the page Home Assistant connects one")
    else:
        hint = "Is it running, and is its login on the page Home Assistant right?"
        yield _link("home broker", state.home_broker, hint=hint)
    if (assistant := state.home_assistant) is not None:
        detail = "connected" if assistant.connected else assistant.error or "not connected yet"
        hint = "" if assistant.connected else "'strawberry setup home-assistant' tries address and token."
        yield Check("home assistant", ok=assistant.connected, detail=detail, hint=hint)
    if state.without_values > 0:
        hint = "'strawberry watchers show' and 'strawberry captures list' say why."
        detail = Phrase("{n} get no values of a topic", n=state.without_values)
        yield failed("watchers and captures", detail, hint)
    try:
        yield from checks.check_devices(ask("/api/devices", list[DeviceAnswer]))
    except StrawberryError as error:
        yield passed("devices", Phrase("not shown: {message}", message=error.message))
    with suppress(StrawberryError):
        for token in ask("/api/tokens?valid=true", list[TokenSummary]):
            if not token.session and not token.current:
                yield from _ending("token", token.name, token.expires_at, "tokens add")
        for client in ask("/api/clients", list[BusClient]):
            yield from _ending("login", client.name, client.expires_at, "broker login")
    with suppress(StrawberryError):
        for server in ask("/api/mcp/servers", McpServers).servers:
            ok = server.state != "failed"
            said = ", ".join(filter(None, (server.state, server.detail)))
            yield Check(
                "MCP server",
                ok=ok,
                detail=Phrase(
                    "{server} as {skill}: {said}", server=server.name, skill=server.skill, said=said
                ),
                hint="" if ok else "See mcp.json; it is started again.",
            )


def _ending(what: str, name: str, at: datetime, command: str) -> Iterator[Check]:
    """Name what a program has if it ends within a month."""
    days = (at - datetime.now(UTC)).days
    if days < 30:
        said = "{name} ends in {days} days; 'strawberry {command}' makes a new one"
        yield passed(what, Phrase(said, name=name, days=days, command=command))


def _link(name: str, link: "LinkHealth", *, hint: str) -> Check:
    from hub_agent.bus.connection import BusHealth

    if not link.connected:
        return failed(name, link.error or "not connected", hint)
    kind = f"{_KINDS[link.kind]}, " if isinstance(link, BusHealth) else ""
    return passed(name, Phrase("{kind}connected with MQTT {mqtt}", kind=kind, mqtt=link.mqtt))


_KINDS = {
    "embedded": "embedded",
    "mosquitto": "a Mosquitto of our own",
    "emqx": "EMQX",
    "nats": "NATS",
    "shared": "shared with others",
}


def _services() -> Iterator[Check]:
    """Look at the services of this user and of the machine, where there are some."""
    if sys.platform != "linux":
        return
    for manager in (Systemd(system=False), Systemd(system=True)):
        for kind in KINDS:
            try:
                state = manager.state(kind)
            except StrawberryError as error:
                yield failed(Phrase("service {kind}", kind=kind), error.message, error.hint)
                continue
            if state is not None:
                yield _service(state, manager)


def _service(service: ServiceState, manager: Systemd) -> Check:
    name, kind = Phrase("service {kind}", kind=service.service), service.service
    if service.state == "active":
        return passed(name, service.detail or "runs")
    logs = f"strawberry service logs {kind}{' --system' if manager.system else ''}"
    return failed(
        name,
        ", ".join(filter(None, (service.state, service.result))),
        Phrase(
            "'{logs}' shows why; '{restart}' starts it again.",
            logs=logs,
            restart=manager.restart_command(kind),
        ),
    )
