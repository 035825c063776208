"""``strawberry broker login``: logins for programs that watch the bus."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from contracts.access import Principal, rights
from contracts.addresses import broker_endpoint, endpoint
from contracts.answers.devices import LoginAnswer
from deploy.cli.client import api, hub_of
from deploy.cli.hub.tokens import lifetime_of
from deploy.cli.terminal.output import Output
from deploy.directory import Home

if TYPE_CHECKING:
    from deploy.home.brokers.registry import OurBroker


def login(options: argparse.Namespace) -> None:
    """Make a login for a program that watches the bus, such as MQTT Explorer.

    The login may read presence and values, but no calls. It may subscribe to #, except on NATS and EMQX.
    """
    # Here: 'broker run' is declared beside it, and starts without.
    from deploy.home.brokers.registry import running_broker

    home = Home.find()
    client = hub_of(options)
    body = {"name": options.name, "chat": options.chat, "home_assistant": options.home_assistant}
    answer = client.post(api("clients"), body | lifetime_of(options.days), LoginAnswer)
    kind = client.request("GET", "/api/health")["broker"].get("kind")
    running = running_broker(home) if options.hub is None else None
    ca = home.certs / "ca.pem"
    ca_file = str(ca) if ca.exists() else "ca.pem (see 'strawberry certs' on the hub)"
    Output(options.json).result(
        {**answer.model_dump(mode="json"), "websocket": running.websocket if running is not None else None},
        text="\n".join(_described(answer, options, running=running, ca_file=ca_file, kind=kind)),
    )


_HOME_ASSISTANT: Final = (
    "In Home Assistant: Settings, Devices & services, Add integration, MQTT. Client id and authority are",
    "among its advanced options. The hub takes part with 'url = \"bus\"' in [home_broker].",
)


def _described(
    answer: LoginAnswer,
    options: argparse.Namespace,
    *,
    running: "OurBroker | None",
    ca_file: str,
    kind: str | None,
) -> Iterator[str]:
    """Describe a login to a person, once.

    Args:
        kind: Of the broker.
    """
    # Mosquitto knows no prefixes: a free client id could push a device off the bus.
    several = kind in ("embedded", "nats")
    name, password, prefix = answer.username, answer.password, answer.prefix
    at = broker_endpoint(answer.brokers[0])
    what = "presence and values, but no calls" + ("; it may also chat" if options.chat else "")
    if options.home_assistant:
        what = "what is exposed to Home Assistant, and command it"
    yield f"The login {name} may read {what}. The password is shown only now."
    yield ""
    yield f"  user name  {name}"
    yield f"  password   {password}"
    yield f"  host       {at.host}, port {at.port}{', with TLS' if at.secure else ''}"
    if running is not None:
        beside = broker_endpoint(running.urls[0])
        if beside != at:
            yield f"             {beside.host}, port {beside.port} on the hub's own machine"
        if running.websocket is not None and (over := endpoint(running.websocket)) is not None:
            yield f"  WebSocket  {over.host}, port {over.port}{', with TLS' if over.secure else ''}"
    if at.secure:
        yield f"  authority  {ca_file}"
    if options.home_assistant:
        yield f"  client id  {name}"
        yield ""
        yield from _HOME_ASSISTANT
        return
    more = f", or {name}-… for each program" if several else ", so one program at a time"
    programs = "mosquitto_sub and mosquitto_pub" if several else "mosquitto_sub and mosquitto_rr"
    yield f"  client id  {name}{more}"
    yield ""
    yield f"In MQTT Explorer: these values, protocol {at.scheme}://, and the client id under Advanced."
    yield ""
    yield f"For {programs}, put these lines into the file of that name in ~/.config,"
    yield "readable by you alone, so that the password is on no command line:"
    yield ""
    yield f"  -h {at.host}"
    yield f"  -p {at.port}"
    yield f"  -u {name}"
    yield f"  -P {password}"
    # With -I the process id follows.
    yield f"  -I {name}-" if several else f"  -i {name}"
    if at.secure:
        yield f"  --cafile {ca_file}"
    yield ""
    filters = ["#"]
    if kind in ("nats", "emqx"):
        reader = Principal("client", name, answer.owner, options.chat)
        filters = [each.filter for each in rights(reader) if each.action == "receive"]
    yield f"and then:  mosquitto_sub -v -t {' -t '.join(repr(prefix + each) for each in filters)}"
    topic = f"{prefix}hub/chat/{name}"
    if options.chat and several:
        ask = f"publish the message to {topic}/request/1"
        yield f"to chat:   mosquitto_sub -t '{topic}/reply/+' -v, and {ask}"
    elif options.chat:
        # Two programs at a time would push each other off; this one asks and hears the answer.
        yield f"to chat:   mosquitto_rr -t {topic}/request/1 -e {topic}/reply/1 -m 'turn on the lamp'"
