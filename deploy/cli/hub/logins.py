"""``strawberry broker login``, ``logins`` and ``logout``: logins for programs that watch the bus."""

import argparse
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from contracts.addresses import Endpoint, broker_endpoint, endpoint
from deploy.cli.client import hub_of
from deploy.cli.terminal.output import Output
from deploy.cli.terminal.tables import moment
from deploy.home.brokers.registry import running_broker
from deploy.home.directory import Home

_CLIENTS: Final = "/api/clients"
_COLUMNS: Final = ("name", "chat", "home_assistant", "created", "expires")


def login(options: argparse.Namespace) -> None:
    """Make a login and print what goes into the programs that use it."""
    home = Home.find()
    client = hub_of(options)
    body = {"name": options.name, "chat": options.chat, "home_assistant": options.home_assistant}
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
            ca_file=str(ca) if ca.exists() else "ca.pem (see 'strawberry certs' on the hub)",
            prefix=answer["prefix"],
            chat=options.chat,
            home_assistant=options.home_assistant,
            # Mosquitto knows no prefixes: a free client id could push a device off the bus.
            several=kind == "embedded",
        ).describe(),
    )


def list_logins(options: argparse.Namespace) -> None:
    """Print the valid logins."""
    rows = hub_of(options).request("GET", _CLIENTS)
    Output(options.json).rows(
        rows,
        _COLUMNS,
        empty="There is no login yet. 'strawberry broker login NAME' makes one.",
        shown=lambda each: {
            **each,
            "created": moment(each["created_at"]),
            "expires": moment(each["expires_at"]),
        },
    )


def logout(options: argparse.Namespace) -> None:
    """Delete a login and disconnect the programs that use it."""
    client = hub_of(options)
    answer = client.request("DELETE", f"{_CLIENTS}/{quote(options.name, safe='')}")
    Output(options.json).result(
        answer or {"name": options.name}, text=f"The login {options.name} is deleted."
    )


_HOME_ASSISTANT: Final = (
    "In Home Assistant: Settings, Devices & services, Add integration, MQTT. Client id and authority are",
    "among its advanced options. The hub takes part with 'url = \"bus\"' in [home_broker].",
)


@dataclass(frozen=True)
class _Login:
    """A login as a person reads it, once."""

    name: str
    password: str
    address: Endpoint
    websocket: Endpoint | None
    beside: Endpoint | None
    ca_file: str
    prefix: str
    chat: bool
    home_assistant: bool
    several: bool

    def describe(self) -> str:
        what = "presence and values, but no calls" + ("; it may also chat" if self.chat else "")
        if self.home_assistant:
            what = "what is exposed to Home Assistant, and command it"
        at, over = self.address, self.websocket
        lines = [
            f"The login {self.name} may read {what}. The password is shown only now.",
            "",
            f"  user name  {self.name}",
            f"  password   {self.password}",
            f"  host       {at.host}, port {at.port}{', with TLS' if at.secure else ''}",
        ]
        if self.beside is not None and self.beside != at:
            lines.append(f"             {self.beside.host}, port {self.beside.port} on the hub's own machine")
        if over is not None:
            path = f"{over.host}, port {over.port}{', with TLS' if over.secure else ''}"
            lines.append(f"  WebSocket  {path}")
        if at.secure:
            lines.append(f"  authority  {self.ca_file}")
        more = f", or {self.name}-… for each program" if self.several else ", so one program at a time"
        if self.home_assistant:
            lines += [f"  client id  {self.name}", "", *_HOME_ASSISTANT]
            return "\n".join(lines)
        programs = "mosquitto_sub and mosquitto_pub" if self.several else "mosquitto_sub and mosquitto_rr"
        lines += [
            f"  client id  {self.name}{more}",
            "",
            f"In MQTT Explorer: these values, protocol {at.scheme}://, and the client id under Advanced.",
            "",
            f"For {programs}, put these lines into the file of that name in ~/.config,",
            "readable by you alone, so that the password is on no command line:",
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
