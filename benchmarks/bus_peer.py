"""The other side of the bus benchmarks, in a process of its own: echo, spoke, heartbeats, flood or broker.

Reads one line of JSON with its settings, writes one line when it is ready, and runs until its work is
done or it is killed.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from pydantic import SecretStr

from broker.embedded.opening import EmbeddedSettings, Listener, open_embedded
from bus.link import LinkSettings, open_link
from bus.link.drivers import without_delay
from bus.rpc import ProgressSink, Responder
from contracts import topics
from contracts.devices.presence import Heartbeat
from contracts.devices.rpc import Call
from contracts.wire import Json
from identity.envelope import Seal
from identity.keys import KeyPair, PublicKey

HUB: Final = "bench"
INSTANCE: Final = "main"
DEVICE: Final = "bench_pi"
ECHO_ASKED: Final = topics.CHAT_REQUEST.build(principal="echo", request="1")
ECHO_ANSWERED: Final = topics.CHAT_REPLY.build(principal="echo", request="1")

FLOODED: Final = topics.STATE.filter(device=DEVICE, skill="Flood")
_PROPERTIES: Final = 10
_BURST: Final = 50
_QUIET_S: Final = 5.0


def make_echo_client(
    name: str, protocol: MQTTProtocolVersion, token: str | None, on_message: Any
) -> paho.Client:
    """Make a plain paho client with TCP_NODELAY."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=protocol)
    if token is not None:
        client.username_pw_set(name, token)
    client.on_socket_open = without_delay
    client.max_inflight_messages_set(0)
    client.on_message = on_message
    return client


def echo(settings: dict[str, Any]) -> None:
    """Send every message back."""
    client = make_echo_client(
        "echo",
        MQTTProtocolVersion(settings["protocol"]),
        settings["token"],
        lambda client, _data, message: client.publish(ECHO_ANSWERED, message.payload, qos=1),
    )
    client.on_subscribe = lambda *_: print("ready", flush=True)
    client.connect("127.0.0.1", settings["port"])
    client.subscribe(ECHO_ASKED, qos=1)
    client.loop_forever()


async def spoke(settings: dict[str, Any]) -> None:
    """Answer calls with their first argument."""

    async def run(call: Call, _skill: str, _method: str, _progress: ProgressSink) -> Json:
        return call.args[0]

    token = settings["token"]
    link_settings = LinkSettings(
        urls=(settings["url"],),
        client_id=DEVICE,
        username=DEVICE,
        password=SecretStr(token) if token else None,
    )
    async with (
        open_link(link_settings) as link,
        Responder(
            link,
            Seal(HUB, KeyPair.load(Path(settings["key"]))),
            device=DEVICE,
            epoch=1,
            hub_key=PublicKey.from_jwk(settings["hub_jwk"]),
            executor=run,
        ),
    ):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def heartbeats(settings: dict[str, Any]) -> None:
    """Send every spoke's heartbeat once a second, spread over the second."""
    token, spokes = settings["token"], settings["spokes"]
    link_settings = LinkSettings(
        urls=(settings["url"],),
        client_id="heartbeats",
        username="heartbeats",
        password=SecretStr(token) if token else None,
    )
    async with open_link(link_settings) as link:
        print("ready", flush=True)
        start = time.perf_counter()
        for number in range(spokes * settings["seconds"]):
            payload = Heartbeat(seq=number, uptime_s=number).model_dump_json().encode()
            topic = topics.HEARTBEAT.build(device=f"spoke{number % spokes}")
            await link.publish(topic, payload, qos=0, retain=True)
            await asyncio.sleep(max(0.0, start + number / spokes - time.perf_counter()))


async def flood(settings: dict[str, Any]) -> None:
    """Send states at a rate; print how long all of them took."""
    link_settings = LinkSettings(urls=(settings["url"],), client_id="flood")
    count, per_s = settings["count"], settings["per_s"]
    async with open_link(link_settings) as link:
        print("ready", flush=True)
        start = time.perf_counter()
        for number in range(count):
            topic = topics.STATE.build(device=DEVICE, skill="Flood", property=f"p{number % _PROPERTIES}")
            await link.publish(topic, state(number), qos=0)
            if number % _BURST == 0:
                await asyncio.sleep(max(0.0, start + number / per_s - time.perf_counter()))
        print(time.perf_counter() - start, flush=True)


def write(settings: dict[str, Any]) -> None:
    """Write each state that comes as a line; print how many, and what it took, when nothing more comes."""
    protocol, written, cpu = MQTTProtocolVersion(settings["protocol"]), 0, 0.0
    with Path(settings["file"]).open("wb") as file:

        def on_message(_client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
            nonlocal written
            written += 1
            head = f'{{"at":{time.time()},"topic":"{message.topic}","link":"bus","payload":'
            file.write(head.encode() + message.payload + b"}\n")

        client = make_echo_client("writer", protocol, None, on_message)
        client.on_subscribe = lambda *_: print("ready", flush=True)
        client.connect("127.0.0.1", settings["port"])
        client.subscribe(FLOODED)
        last, heard = 0, time.monotonic()
        while written < settings["count"] and (not written or time.monotonic() - heard < _QUIET_S):
            client.loop(0.1)
            if written == 0:
                cpu = time.process_time()
            if written != last:
                last, heard = written, time.monotonic()
        print(json.dumps({"written": written, "cpu_s": time.process_time() - cpu}), flush=True)


def state(number: int) -> bytes:
    """Make the payload of a state."""
    return (
        b'{"v":1,"kind":"state","value":%d,"unit":"%%","device_class":null,"at":"2026-01-01T00:00:00.000Z"}'
        % number
    )


async def broker(settings: dict[str, Any]) -> None:
    """Run the embedded broker."""
    directory = Path(settings["directory"])
    hub_key = KeyPair.load(directory / "hub.pem").public
    embedded = EmbeddedSettings(
        data_dir=directory / "broker", hub_id=HUB, hub_key=hub_key, listeners=(Listener(port=0),)
    )
    async with open_embedded(embedded) as running:
        print(running.port, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Play the role named on the command line."""
    settings = json.loads(sys.stdin.readline())
    role = sys.argv[1]
    if role in ("echo", "write"):
        {"echo": echo, "write": write}[role](settings)
    else:
        roles = {"spoke": spoke, "broker": broker, "heartbeats": heartbeats, "flood": flood}
        asyncio.run(roles[role](settings))


if __name__ == "__main__":
    main()
