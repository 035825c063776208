"""``strawberry broker login``, ``logins`` and ``logout``: people and programs that watch the bus."""

import argparse
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from contracts.addresses import Endpoint, broker_endpoint, endpoint
from deploy.cli.client import hub_of
from deploy.cli.terminal.output import Output
from deploy.home.broker_registry import running_broker
from deploy.home.directory import Home

_CLIENTS: Final = "/api/clients"
_COLUMNS: Final = ("name", "chat", "created_at", "expires_at")


def login(options: argparse.Namespace) -> None:
    """Make a login and print what goes into the programs that use it."""
    home = Home.find()
    client = hub_of(options)
    body = {"name": options.name, "chat": options.chat}
    answer: dict[str, Any] = client.request("POST", _CLIENTS, body)
    kind = client.request("GET", "/api/health")["broker"].get("kind")
    running = running_broker(home) if options.hub is None else None
    websocket = running.websocket if running is not None else None
    ca = home.certs / "ca.pem"
    Output(options.json).result(
        {**answer, "websocket": websocket},
        text=_Login(
            name=answer["username"],
            password=answer["password"],
            address=broker_endpoint(answer["brokers"][0]),
            websocket=None if websocket is None else endpoint(websocket),
            beside=broker_endpoint(running.urls[0]) if running is not None else None,
            ca_file=str(ca) if ca.exists() else "ca.pem (from 'strawberry certs' where the hub is)",
            prefix=answer["prefix"],
            chat=options.chat,
            # Mosquitto knows no prefixes: a free client id could push a device off the bus.
            several=kind == "embedded",
        ).describe(),
    )


def list_logins(options: argparse.Namespace) -> None:
    """Print the logins that were made and have not ended."""
    rows = hub_of(options).request("GET", _CLIENTS)
    Output(options.json).rows(rows, _COLUMNS, empty="No login yet. 'strawberry broker login NAME' makes one.")


def logout(options: argparse.Namespace) -> None:
    """End a login; whoever uses it is disconnected."""
    client = hub_of(options)
    answer = client.request("DELETE", f"{_CLIENTS}/{quote(options.name, safe='')}")
    Output(options.json).result(
        answer or {"name": options.name}, text=f"{options.name} may no longer log in."
    )


@dataclass(frozen=True)
class _Login:
    """A login as a person is told of it, once."""

    name: str
    password: str
    address: Endpoint
    websocket: Endpoint | None
    beside: Endpoint | None
    ca_file: str
    prefix: str
    chat: bool
    several: bool

    def describe(self) -> str:
        what = "presence and values, and may chat" if self.chat else "presence and values, nothing of calls"
        at, over = self.address, self.websocket
        lines = [
            f"The login {self.name} sees {what}. The password is shown once.",
            "",
            f"  user name  {self.name}",
            f"  password   {self.password}",
            f"  host       {at.host}, port {at.port}{', with TLS' if at.secure else ''}",
        ]
        if self.beside is not None and self.beside != at:
            lines.append(
                f"             {self.beside.host}, port {self.beside.port} on the machine of the hub"
            )
        if over is not None:
            path = f"{over.host}, port {over.port}{', with TLS' if over.secure else ''}"
            lines.append(f"  WebSocket  {path}")
        if at.secure:
            lines.append(f"  authority  {self.ca_file}")
        more = f", or {self.name}-… for each program" if self.several else ", so one program at a time"
        programs = "mosquitto_sub and mosquitto_pub" if self.several else "mosquitto_sub and mosquitto_rr"
        lines += [
            f"  client id  {self.name}{more}",
            "",
            f"In MQTT Explorer: these values, protocol {at.scheme}://, and the client id under Advanced.",
            "",
            f"For {programs}, put these lines into the file of that name in",
            "~/.config, readable by you alone, so that the password is on no command line:",
            "",
            f"  -h {at.host}",
            f"  -p {at.port}",
            f"  -u {self.name}",
            f"  -P {self.password}",
            # With -I the process id follows.
            f"  -I {self.name}-" if self.several else f"  -i {self.name}",
        ]
        if at.secure:
            lines.append(f"  --cafile {self.ca_file}")
        lines += ["", f"and then:  mosquitto_sub -t '{self.prefix}#' -v"]
        if self.chat:
            lines.append(f"to chat:   {self._chat()}")
        return "\n".join(lines)

    def _chat(self) -> str:
        topic = f"{self.prefix}hub/chat/{self.name}"
        if not self.several:
            # Two programs at a time would push each other off; this one asks and hears the answer.
            return f"mosquitto_rr -t {topic}/request/1 -e {topic}/reply/1 -m 'turn on the lamp'"
        return f"mosquitto_sub -t '{topic}/reply/#' -v, and publish the message to {topic}/request/1"
