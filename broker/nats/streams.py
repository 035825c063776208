"""Bounds of what NATS stores of MQTT, so that the messages of one client do not fill the disk of all."""

import asyncio
import json
import logging
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as NatsError

from broker import limits

__all__ = ["API", "BOUNDS", "keep_bounded"]

_log = logging.getLogger(__name__)

API: Final = "home.STREAM"
"""Under which the hub reaches the streams of the home's account, from its own."""

BOUNDS: Final[dict[str, dict[str, Any]]] = {
    # What is retained already is replaced also where there is no room for more.
    "$MQTT_rmsgs": {"max_bytes": limits.NATS_RETAINED_BYTES, "discard": "new"},
    # A publisher whose message is not stored is disconnected, and a login whose session is not is refused.
    "$MQTT_msgs": {"max_bytes": limits.NATS_UNDELIVERED_BYTES, "discard": "old"},
    "$MQTT_sess": {"max_bytes": limits.NATS_SESSION_BYTES, "discard": "old"},
}


async def keep_bounded(client: Client) -> None:
    """Bound the streams that NATS makes at the first login, and warn of one that fills, until cancelled."""
    while True:
        try:
            for name, bounds in BOUNDS.items():
                await _bound(client, name, bounds)
            wait = limits.NATS_STORE_LOOK_S
        except (NatsError, ValueError, LookupError) as error:
            _log.debug("the streams of NATS are not bounded yet: %s", error)
            wait = limits.NATS_RECONNECT_S
        await asyncio.sleep(wait)


async def _bound(client: Client, name: str, bounds: dict[str, Any]) -> None:
    found = await _ask(client, f"{API}.INFO.{name}")
    if not bounds.items() <= found["config"].items():
        await _ask(client, f"{API}.UPDATE.{name}", found["config"] | bounds)
        _log.info("%s of NATS is bounded now", name)
    stored, most = found["state"]["bytes"], bounds["max_bytes"]
    if stored > limits.NATS_FULL_SHARE * most:
        _log.warning("%s of NATS holds %d MiB of at most %d", name, stored >> 20, most >> 20)


async def _ask(client: Client, subject: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
    message = await client.request(subject, json.dumps(request or {}).encode(), timeout=limits.NATS_ANSWER_S)
    answer: dict[str, Any] = json.loads(message.data)
    if "error" in answer:
        raise LookupError(answer["error"].get("description"))
    return answer
