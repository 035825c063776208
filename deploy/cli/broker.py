"""``strawberry broker provision`` and ``check``: set up a Mosquitto, and try it."""

import argparse
import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from broker.check import Finding, OurBroker, SharedBroker
from broker.check import check as try_broker
from broker.mosquitto.provisioning import Provisioned
from broker.mosquitto.provisioning import provision as set_up
from contracts.devices.joining import Login
from contracts.errors import ConfigError
from deploy.cli.terminal.asking import ask_password
from deploy.cli.terminal.output import Output, note, waiting
from deploy.cli.terminal.tables import table
from deploy.directory import Home
from deploy.home.brokers.bus import choose_bus, read_authority
from deploy.home.brokers.processes import load_identity
from deploy.home.brokers.registry import (
    keep_provisioned,
    provisioned_broker,
    refuse_login_in,
    refuse_readable,
    running_broker,
)
from deploy.logs.terminal import visible
from deploy.settings.settings import BrokerTable, read_table
from identity.files import make_private_directory

_PASSWORD: Final = "STRAWBERRY_BROKER_PASSWORD"  # noqa: S105  the name of a variable

_ACCEPT: Final = (
    "Give it a listener with TLS and use its mqtts:// address, with --ca FILE; or add --insecure if the "
    "network is protected otherwise."
)


def provision(options: argparse.Namespace) -> None:
    """Set up dynamic security on a Mosquitto and remember that it is ours."""
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
    home: Home, options: argparse.Namespace, password: SecretStr, ca: str | None
) -> Provisioned:
    identity = await load_identity(home)
    admin = Login(username=options.admin, password=password.get_secret_value())
    return await set_up(options.url, admin, ca=ca, hub_id=identity.hub_id, key=identity.key)


def check(options: argparse.Namespace) -> int:
    """Try a broker, and print what works and what does not; return 1 if something does not."""
    home = Home.find()
    with waiting("trying the broker"):
        findings = asyncio.run(_check(home, options.url, trust=options.trust_broker))
    if options.json:
        Output(as_json=True).result([asdict(each) for each in findings])
    else:
        for each in findings:
            print(visible(f"{'✓' if each.ok else '✗'} {each.name}: {each.detail}"))
            if each.hint:
                print(visible(f"    {each.hint}"))
        note("The log of the broker has warnings about these refusals; that is as it should be.")
    return 0 if all(each.ok for each in findings) else 1


async def _check(home: Home, url: str | None, *, trust: bool) -> list[Finding]:
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
    if not bus.is_ours():
        raise ConfigError(
            f"no broker of Strawberry runs at {bus.url}",
            hint="Start it with 'strawberry up' or 'strawberry broker run', or give its address.",
        )
    identity = await load_identity(home)
    ours = OurBroker(bus.kind, bus.url, hub_id=identity.hub_id, key=identity.key, ca=bus.ca)
    return await try_broker(ours)


def _report(url: str, done: Provisioned) -> list[str]:
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
