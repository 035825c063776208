"""Which broker is the bus of this home, found out before anything is sent to it."""

import asyncio
import os
from pathlib import Path
from typing import Final

from pydantic import SecretStr, ValidationError

from agent_core.models.entries import read_variable
from agent_core.setup.writing import write_key
from broker.probe import ProbeLogin, open_probe
from bus.link.tls_failure import connect_failure
from bus.ports import try_port
from contracts.addresses import BROKER_PORTS, LOOPBACK, bracketed, broker_endpoint
from contracts.devices.joining import Login
from contracts.errors import ConfigError, Disconnected, LoginRefused
from deploy import limits
from deploy.directory import Home
from deploy.home.brokers.registry import (
    OurBroker,
    by_number,
    find_ours,
    is_local,
    refuse_readable,
    running_broker,
)
from deploy.settings.settings import (
    BrokerTable,
    HomeBrokerTable,
    LoginTable,
    check_settings,
    read_broker_port,
    read_table,
    write_table,
)
from hub_agent.settings import BusSettings, HomeLinkSettings

_SHARED_PREFIX: Final = "strawberry/"
"""On a broker that others use, too, all of ours stands together."""
_PASSWORD_VARIABLE: Final = "HOME_BROKER_PASSWORD"  # noqa: S105
_LOGIN_HINT: Final = "Check the user name and the password."
_PORT_HINT: Final = "Check the port, which is 1883 without TLS. With TLS, the address begins with mqtts://."
_LOGIN_REFUSALS: Final = frozenset({"Bad user name or password", "Not authorized"})
"""Reasons of MQTT that tell no more than the refusal itself."""
_WITH_TLS: Final = "Give it a listener with TLS, and set up its mqtts:// address."


async def choose_bus(home: Home, url: str | None, *, trust: bool) -> BusSettings:
    """Decide how the hub uses the broker at an address.

    Args:
        url: None takes the one of ``[broker]``, else that of this home's own broker.
        trust: Whether a broker that Strawberry did not set up may be used.

    Raises:
        ConfigError: If it is such a broker without that word, or the settings cannot be used.
    """
    table = read_table(home, "broker", BrokerTable)
    if table is not None and table.url is None:
        table = None
    if url is None:
        url = (table.url if table is not None else None) or _own_url(home)
    if table is not None:
        # Of a cluster, each node's address counts.
        named = (table.url or "", *(table.addresses if table.kind == "nats" else ()))
        if by_number(url) not in map(by_number, named):
            table = None
    addresses = table.addresses if table is not None else ()
    if table is not None and table.kind == "emqx":
        for each in (url, *addresses):
            refuse_readable(each, hint=_WITH_TLS)
        return BusSettings(url=url, kind="emqx", ca=_authority(home, table), addresses=addresses)
    if table is not None and table.kind == "nats":
        return _cluster(home, url, table)
    ours = find_ours(home, url)
    if ours is not None:
        if not ours.insecure:
            refuse_readable(
                url, hint=f"{_WITH_TLS} 'strawberry broker provision {url} --insecure' accepts it."
            )
        return own_bus(home, ours.own_name_of(url) or url, ours, addresses)
    if trust or (table is not None and table.trust):
        return BusSettings(
            url=url,
            kind="shared",
            topic_prefix=_SHARED_PREFIX,
            login=_login(home, table) if table is not None else None,
            ca=_authority(home, table) if table is not None else None,
            addresses=addresses,
        )
    url = by_number(url)
    failure = await _failure(url)
    if failure is None:
        raise ConfigError(
            f"the broker at {url} was not set up by Strawberry, so no token is sent to it",
            hint=f"A Mosquitto of your own: 'strawberry broker provision {url}'. Another one, with its "
            "ordinary login: --trust-broker.",
        )
    if not is_local(url):
        reason, hint = connect_failure(failure, broker_endpoint(url)[1], tls=False)
        raise ConfigError(
            f"no broker can be reached at {url}: {reason}",
            hint=hint or "Check that it runs, and that the address is right.",
        )
    # Nothing listens there yet: the embedded broker of this home may start, and no other broker is used.
    return own_bus(home, url, OurBroker("embedded", urls=(url,)), addresses)


def _cluster(home: Home, url: str, table: BrokerTable) -> BusSettings:
    """Return how the hub uses nodes of NATS that the settings name as ours."""
    for each in (url, *table.addresses, *table.nodes):
        refuse_readable(each.replace("tls:", "mqtts:").replace("nats:", "mqtt:"), hint=_WITH_TLS)
    return BusSettings(
        url=url, kind="nats", ca=_authority(home, table), addresses=table.addresses, nodes=table.nodes
    )


def _own_url(home: Home) -> str:
    """Return where this home's own broker listens, or will."""
    if (running := running_broker(home)) is not None:
        return running.urls[0]
    return f"mqtt://{LOOPBACK}:{read_broker_port(home) or BROKER_PORTS['mqtt']}"


def choose_home_link(home: Home, bus: BusSettings) -> HomeLinkSettings | None:
    """Decide how the hub uses the broker of ``[home_broker]``; None if there is no such table.

    Args:
        bus: What ``url = "bus"`` means.

    Raises:
        ConfigError: If ``[home_broker]`` or what it names cannot be used.
    """
    table = read_table(home, "home_broker", HomeBrokerTable)
    if table is None:
        return None
    if table.url == "bus" and bus.kind == "emqx":
        raise ConfigError(
            'EMQX takes one connection of the hub: [home_broker] cannot have url = "bus" there',
            hint="Name another broker in [home_broker].",
        )
    if table.url == "bus":
        return HomeLinkSettings(
            url=bus.url, login=bus.login, ca=bus.ca, publish=table.publish, is_bus=bus.kind != "shared"
        )
    return HomeLinkSettings(
        url=table.url, login=_login(home, table), ca=_authority(home, table), publish=table.publish
    )


async def connect_home_broker(home: Home, url: str, username: str, password: SecretStr | None) -> None:
    """Log in to a broker once, and write it down as the one of ``[home_broker]``.

    Args:
        url: One without a scheme is that of a broker without TLS.
        username: Empty for a broker that asks for no login.
        password: None likewise.

    Raises:
        ConfigError: If the address, the password or the settings cannot be used.
        LinkError: If the broker does not accept the login; nothing is written then.
    """
    # Settings that are wrong already would keep the hub from starting again.
    check_settings(home)
    scheme, host, port = broker_endpoint(url if "://" in url else f"mqtt://{url}")
    # As it was read: capitals in the scheme and line feeds are no part of it.
    url = f"{scheme}://{bracketed(host)}:{port}"
    present = read_table(home, "home_broker", HomeBrokerTable)
    variable = None
    if password is not None:
        variable = (present and present.password_env) or _PASSWORD_VARIABLE
        if os.environ.get(variable) not in (None, "", password.get_secret_value()):
            raise ConfigError(
                "{name} is set where the hub was started, which has precedence",
                name=variable,
                hint="Change the password there, or remove it there.",
            )
    written = {"url": url, "username": username or None, "password_env": variable}
    try:
        table = HomeBrokerTable.model_validate({**(present.model_dump() if present else {}), **written})
    except ValidationError:
        hint = "Write it as mqtt://host:1883."
        raise ConfigError("{text!r} is not the address of a broker", text=url, hint=hint) from None
    ca = _authority(home, table)
    login = ProbeLogin(url, "strawberry-home-try", username or None, password, ca=ca)
    async with open_probe(login) as tried:
        if tried.is_not_understood:
            raise Disconnected("what answers at {url} is not an MQTT broker", url=url, hint=_PORT_HINT)
        if tried.refusal is not None:
            is_told = tried.refusal in _LOGIN_REFUSALS
            refused = "{url} refuses this login" if is_told else "{url} refuses this login: {reason}"
            raise LoginRefused(refused, url=url, reason=tried.refusal, hint=_LOGIN_HINT)
    # The password first: without it the next start is refused.
    if password is not None and variable is not None:
        write_key(home.directory, variable, password)
    write_table(home.directory, "home_broker", written)


def own_bus(home: Home, url: str, ours: OurBroker, addresses: tuple[str, ...] = ()) -> BusSettings:
    """Return how the hub uses a broker of our own: it logs in only while that one runs."""
    return BusSettings(
        url=url,
        kind=ours.kind,
        ca=ours.ca,
        addresses=addresses or ours.addresses,
        nodes=ours.nodes,
        is_ours=lambda: find_ours(home, url) is not None,
    )


async def _failure(url: str) -> OSError | None:
    """Return why no program accepts connections there, None where one does; nothing is sent."""
    _, host, port = broker_endpoint(url)
    try:
        async with asyncio.timeout(limits.BROKER_LOOK_S):
            await try_port(host, port)
    except OSError as error:  # a TimeoutError is one
        return error
    return None


def _login(home: Home, table: LoginTable) -> Login | None:
    if table.username is None and table.password_env is None:
        return None
    password = read_variable(home.directory, table.password_env) if table.password_env is not None else None
    return Login(username=table.username, password=password)


def _authority(home: Home, table: LoginTable) -> str | None:
    return None if table.ca is None else read_authority(home.directory / table.ca)


def read_authority(file: Path) -> str:
    """Read the certificate authority of a broker.

    Raises:
        ConfigError: If the file cannot be read, or holds no certificate.
    """
    try:
        text = file.expanduser().read_text("ascii")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not PEM"
        raise ConfigError(
            f"cannot read the certificate authority {file}: {reason}",
            hint="Name a PEM file that you can read.",
        ) from None
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise ConfigError(f"{file} holds no certificate", hint="It must be PEM.")
    return text
