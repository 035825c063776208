"""``strawberry broker provision`` and ``check``: set up a Mosquitto, and try it."""

import argparse
import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contracts.errors import ConfigError
from deploy.cli.hub.logins import login
from deploy.cli.resources import add_declared
from deploy.cli.serve import run_broker
from deploy.cli.terminal.arguments import add_listeners, add_node, add_trust
from deploy.cli.terminal.asking import ask_password
from deploy.cli.terminal.output import Output, note, table, waiting
from deploy.cli.terminal.parser import Actions, days
from deploy.directory import Home
from identity.files import make_private_directory

if TYPE_CHECKING:
    from pydantic import SecretStr

    from broker.check import Finding
    from broker.mosquitto.provisioning import Provisioned

_PASSWORD: Final = "STRAWBERRY_BROKER_PASSWORD"  # noqa: S105  the name of a variable

_ACCEPT: Final = (
    "Give it a listener with TLS and use its mqtts:// address, with --ca FILE; or add --insecure if the "
    "network is protected otherwise."
)


def provision(options: argparse.Namespace) -> None:
    """Set up a Mosquitto of your own for Strawberry.

    Sets up roles and the hub's login on a Mosquitto with the dynamic security plugin. Asks for the
    password of its admin (or takes it from STRAWBERRY_BROKER_PASSWORD or standard input) and stores it
    nowhere. Clients that the broker knows already keep working.
    """
    # Here, as below: 'broker run' starts without all of it.
    from deploy.home.brokers.bus import read_authority
    from deploy.home.brokers.registry import keep_provisioned, refuse_login_in, refuse_readable

    home = Home.find()
    make_private_directory(home.directory)
    refuse_login_in(options.url)
    if not options.insecure:
        refuse_readable(options.url, hint=_ACCEPT)
    ca = read_authority(Path(options.ca)) if options.ca else None
    password = ask_password(f"Password of {options.admin} at {options.url}", variable=_PASSWORD)
    with waiting("setting up dynamic security"):
        done = asyncio.run(_provision(home, options, password, ca))
    keep_provisioned(home, url=options.url, ca=ca, insecure=options.insecure)
    Output(options.json).result(
        {
            "url": options.url,
            "username": done.username,
            "changed": done.changed,
            "others": [
                {"username": each.username, "name": each.name, "reaches_us": each.reaches_us}
                for each in done.others
            ],
        },
        text="\n".join(_report(options.url, done)),
    )


async def _provision(
    home: Home, options: argparse.Namespace, password: "SecretStr", ca: str | None
) -> "Provisioned":
    from broker.mosquitto.provisioning import provision as set_up
    from contracts.devices.joining import Login
    from deploy.home.brokers.processes import load_identity

    identity = await load_identity(home)
    admin = Login(username=options.admin, password=password.get_secret_value())
    return await set_up(options.url, admin, ca=ca, hub_id=identity.hub_id, key=identity.key)


def check(options: argparse.Namespace) -> int:
    """Try whether logins work and foreign access is denied."""
    home = Home.find()
    with waiting("trying the broker"):
        findings = asyncio.run(_check(home, options.url, trust=options.trust_broker))
    lines = [
        f"{'✓' if each.ok else '✗'} {each.name}: {each.detail}" + (f"\n    {each.hint}" if each.hint else "")
        for each in findings
    ]
    Output(options.json).result([asdict(each) for each in findings], text="\n".join(lines))
    if not options.json:
        note("The log of the broker has warnings about these refusals; that is as it should be.")
    return 0 if all(each.ok for each in findings) else 1


async def _check(home: Home, url: str | None, *, trust: bool) -> "list[Finding]":
    from broker.check import OurBroker, SharedBroker
    from broker.check import check as try_broker
    from contracts.devices.joining import Login
    from deploy.home.brokers.bus import choose_bus
    from deploy.home.brokers.processes import load_identity
    from deploy.home.brokers.registry import provisioned_broker, running_broker
    from deploy.settings.settings import BrokerTable, read_table

    if url is None:
        # What runs, what was set up, and only then what the settings name.
        known = running_broker(home)
        table = read_table(home, "broker", BrokerTable)
        if known is None and (table is None or table.url is None):
            known = provisioned_broker(home)
        url = known.urls[0] if known is not None else None
    bus = await choose_bus(home, url, trust=trust)
    if bus.kind == "shared":
        shared = SharedBroker(bus.url, bus.login or Login(), prefix=bus.topic_prefix, ca=bus.ca)
        return await try_broker(shared)
    if bus.kind == "emqx":
        raise ConfigError("EMQX cannot be checked", hint="'strawberry render emqx' prints what it needs.")
    if not bus.is_ours():
        raise ConfigError(
            f"no broker of Strawberry runs at {bus.url}",
            hint="Start it with 'strawberry up' or 'strawberry broker run', or give its address.",
        )
    identity = await load_identity(home)
    ours = OurBroker(bus.kind, bus.url, hub_id=identity.hub_id, key=identity.key, ca=bus.ca)
    return await try_broker(ours)


def _report(url: str, done: "Provisioned") -> list[str]:
    verb = "is set up" if done.changed else "was set up already; nothing was changed"
    lines = [f"The broker at {url} {verb}. The hub can log in as {done.username}."]
    if done.others:
        rows = [(each.username, each.name, _FATE[each.reaches_us]) for each in done.others]
        lines += ["", "Its other clients keep working, each with the rights it had:", ""]
        lines += [f"  {line}" for line in table(rows, ("client", "name", "what it may")).splitlines()]
    lines += ["", f"Now:  strawberry up --broker {url}", f"      strawberry broker check {url}"]
    return lines


_FATE: Final = {
    False: "no access to Strawberry's topics",
    True: "has a role that reaches Strawberry's topics; remove it if it should not",
}


def add_broker_actions(actions: Actions) -> None:
    """Declare 'strawberry broker'."""
    command = actions.add_parser("run", run=run_broker)
    add_listeners(command)
    add_node(command)
    command.add_flag("--with-parent", argparse.SUPPRESS)
    command = actions.add_parser("provision", run=provision)
    command.takes("url", "for example mqtt://127.0.0.1:1883")
    command.takes(
        "--admin",
        "user name of its dynamic security admin; default %(default)s",
        metavar="NAME",
        default="admin",
    )
    command.takes(
        "--ca", "certificate authority of an mqtts address; default: those of the system", metavar="FILE"
    )
    command.add_flag(
        "--insecure",
        "allow a broker on another machine without TLS: others in the network can read everything",
    )
    command = actions.add_parser("check", run=check)
    command.takes("url", "default: the broker in use", nargs="?")
    add_trust(command)
    command = actions.add_parser("login", run=login, hub=True)
    command.add_flag("--home-assistant", "for Home Assistant: what is exposed to it, and nothing else")
    command.takes("name", "for example mqtt_explorer")
    command.add_flag("--chat", "also allow chat, over hub/chat/NAME/…")
    command.takes(
        "--days",
        "days until it expires, or never (a hundred years); default 365, and never with --home-assistant",
        type=days,
        metavar="N",
    )
    add_declared(actions, "broker")
