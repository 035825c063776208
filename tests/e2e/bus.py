"""Somebody on the bus of a home who hears everything and may say anything: on a foreign broker, anybody."""

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from pydantic import SecretStr

from bus.link.client import stop_loop
from contracts.claims import PrincipalKind
from identity import tokens
from identity.envelope import Seal
from identity.keys import KeyPair
from tests.e2e.house import PATIENCE_S, House, wait_for

_LOOK_S = 0.5
EVERYTHING = ("devices/#", "hub/#")


def _send_at_once(_client: object, _data: object, connection: Any) -> None:
    """Send small packets at once: each round trip would take 40 ms."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@dataclass(frozen=True)
class Heard:
    """One message as it came by."""

    topic: str
    payload: bytes
    retain: bool

    @property
    def fields(self) -> dict[str, Any]:
        """The payload as JSON; empty where it is none."""
        try:
            parsed = json.loads(self.payload)
        except ValueError:
            return {}
        return parsed if isinstance(parsed, dict) else {}


@dataclass
class Bus:
    """A connection to the broker of a house; a context manager.

    Attributes:
        prefix: In front of every topic on that broker, and nowhere here.
        heard: What came by, in order.
        gone: Set when the broker ended the connection.
    """

    url: str
    name: str
    token: str | Callable[[], SecretStr] = "none"
    client_id: str = ""
    filters: tuple[str, ...] = EVERYTHING
    prefix: str = ""
    heard: list[Heard] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id=self.client_id or self.name)
        token = self.token if isinstance(self.token, str) else self.token().get_secret_value()
        self._client.username_pw_set(self.name, token)
        self._client.on_socket_open = _send_at_once
        self._client.on_connect = lambda client, *_: client.subscribe(
            [(self.prefix + each, 1) for each in self.filters]
        )
        self._client.on_subscribe = lambda *_: ready.set()
        self._client.on_disconnect = lambda *_: self.gone.set()
        self._client.on_message = lambda _c, _u, message: self.heard.append(
            Heard(message.topic.removeprefix(self.prefix), bytes(message.payload), message.retain)
        )
        address = urlsplit(self.url)
        self._client.connect(str(address.hostname), address.port or 1883)
        self._client.loop_start()
        assert ready.wait(PATIENCE_S), "the broker did not let us in"
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        stop_loop(self._client)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish, and wait until the broker has it, or has thrown us out."""
        sent = self._client.publish(self.prefix + topic, payload, qos=1, retain=retain)
        deadline = time.monotonic() + PATIENCE_S
        while not self.gone.is_set() and not sent.is_published() and time.monotonic() < deadline:
            sent.wait_for_publish(_LOOK_S)

    def on(self, topic: str, **wanted: Any) -> list[Heard]:
        """What came by on a topic, or below one that ends in a slash, with these fields."""
        return [
            one
            for one in list(self.heard)
            if (one.topic.startswith(topic) if topic.endswith("/") else one.topic == topic)
            and wanted.items() <= one.fields.items()
        ]

    def wait(self, topic: str, *, after: int = 0, **wanted: Any) -> Heard:
        """Wait for the first such message beyond so many that were there before."""
        return wait_for(lambda: self.on(topic, **wanted)[after:], what=f"{wanted} on {topic}")[0]

    def quiet(self, seconds: float) -> None:
        """Give what must not happen the time to happen."""
        time.sleep(seconds)


def hub_seal(house: House) -> Seal:
    """What signs as the hub of a house does."""
    return Seal(_hub_id(house), KeyPair.load(house.home / "hub" / "key.pem"))


def _hub_id(house: House) -> str:
    return str(house.get("/.well-known/strawberry")["hub_id"])


def overhear(house: House) -> Bus:
    """Connect to a house's broker with the rights of the hub, which on a foreign broker anybody has."""
    seal = hub_seal(house)
    kind: PrincipalKind = "hub"
    claims = tokens.make_claims(
        hub_id=seal.hub_id, subject="ear", kind=kind, owner="", scopes=(), lifetime_s=600
    )
    return Bus(house.broker_url, "ear", tokens.issue(seal.key, claims), prefix=house.topic_prefix)
