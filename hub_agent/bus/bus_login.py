"""The hub's login on its bus, for each kind of broker."""

import socket
from dataclasses import replace
from functools import partial

from pydantic import SecretStr

from broker.mosquitto.own_logins import HUB, hub_login
from bus.link import LinkSettings, spread
from bus.link.tls_failure import connect_failure
from contracts.addresses import broker_endpoint
from contracts.devices.joining import Login
from contracts.errors import Disconnected, LoginRefused
from hub_agent import limits
from hub_agent.settings import MAIN, BusSettings, HubSettings
from hub_registry.registry import Registry
from identity import tokens


def link_settings(settings: HubSettings, registry: Registry) -> LinkSettings:
    """Return the login on the bus.

    A broker of our own gets the hub's token or the password that follows from its key, each time only after
    the settings have confirmed that it is ours. A shared one gets its ordinary login and nothing else.
    """
    bus, instance = settings.bus, settings.instance
    common = LinkSettings(
        urls=bus.urls, client_id=f"{HUB}{instance}", ca=bus.ca, topic_prefix=bus.topic_prefix, qos=bus.qos
    )
    if len(bus.nodes) > 1:
        common = replace(common, urls=spread(bus.urls, instance), connect_timeout_s=limits.CLUSTER_CONNECT_S)
    match bus.kind:
        case "embedded" | "emqx" | "nats":
            # The user name must be the subject of the token, which is the instance.
            password = partial(_token, settings, registry)
            return replace(common, client_id=instance, username=instance, password=password)
        case "mosquitto":
            # All replicas have the login that was set up for the home.
            login = hub_login(registry.key, MAIN if settings.is_replica else instance)
            derived = partial(_derived, bus, SecretStr(login.password or ""))
            return replace(common, username=login.username, password=derived)
        case "shared":
            return with_login(common, bus.login)


def with_login(link: LinkSettings, login: Login | None) -> LinkSettings:
    """Return the settings of a link with an ordinary login."""
    if login is None:
        return link
    password = SecretStr(login.password) if login.password is not None else None
    return replace(link, username=login.username, password=password)


def _token(settings: HubSettings, registry: Registry) -> SecretStr:
    _refuse_foreign(settings.bus)
    claims = tokens.make_claims(
        hub_id=registry.hub_id,
        subject=settings.instance,
        kind="hub",
        owner=registry.admin.id,
        scopes=(),
        lifetime_s=limits.BUS_TOKEN_S,
    )
    return SecretStr(registry.authority.sign(claims))


def _derived(bus: BusSettings, password: SecretStr) -> SecretStr:
    _refuse_foreign(bus)
    return password


def _refuse_foreign(bus: BusSettings) -> None:
    if bus.is_ours():
        return
    _, host, port = broker_endpoint(bus.url)
    try:
        # A broker of our own that is not known to run is one of this machine: the answer comes at once.
        socket.create_connection((host, port), timeout=limits.LOGIN_LOOK_S).close()
    except OSError as error:
        raise Disconnected(
            connect_failure(error, host, tls=False)[0],
            hint="'strawberry broker run' starts the broker of this home.",
        ) from None
    raise LoginRefused(
        f"what listens at {bus.url} is not known as the broker of this home, so no login is sent to it",
        hint="Start the broker of this home, or use the other one with --trust-broker.",
    )
