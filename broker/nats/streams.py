"""Bounds of what NATS stores of MQTT, so that the messages of one client do not fill the disk of all."""

import asyncio
import logging
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as NatsError

from broker import limits

__all__ = ["API", "BOUNDS", "keep_bounded"]

_log = logging.getLogger(__name__)

API: Final = "home"
"""Prefix under which the hub reaches the streams of the home's account, from its own."""

BOUNDS: Final[dict[str, dict[str, Any]]] = {
    # What is retained already is replaced also where there is no room for more.
    "$MQTT_rmsgs": {"max_bytes": limits.NATS_RETAINED_BYTES, "discard": "new"},
    # A publisher whose message is not stored is disconnected, and a login whose session is not is refused.
    "$MQTT_msgs": {"max_bytes": limits.NATS_UNDELIVERED_BYTES, "discard": "old"},
    "$MQTT_sess": {"max_bytes": limits.NATS_SESSION_BYTES, "discard": "old"},
}

_STORES: Final = {"$MQTT_rmsgs": "retained", "$MQTT_msgs": "undelivered", "$MQTT_sess": "sessions"}


async def keep_bounded(client: Client, fill: dict[str, float]) -> None:
    """Bound the streams that NATS makes at the first login, and warn of one that fills, until cancelled.

    Args:
        fill: Gets by ``retained``, ``undelivered`` and ``sessions`` which share of its bytes a stream holds.
    """
    streams = client.jsm(prefix=API, timeout=limits.NATS_ANSWER_S)
    task = asyncio.current_task()
    while True:
        wait = limits.NATS_STORE_LOOK_S
        try:
            for name, bounds in BOUNDS.items():
                found = await streams.stream_info(name)
                if (bounded := found.config.evolve(**bounds)) != found.config:
                    await streams.update_stream(bounded)
                    _log.debug("%s of NATS is bounded now", name)
                stored, most = found.state.bytes, bounds["max_bytes"]
                fill[_STORES[name]] = stored / most
                if stored > limits.NATS_FULL_SHARE * most:
                    _log.warning("%s of NATS holds %d MiB of at most %d", name, stored >> 20, most >> 20)
        except (NatsError, ValueError) as error:
            _log.debug("the streams of NATS are not bounded yet: %s", error)
            wait = limits.NATS_RECONNECT_S
        except Exception as error:  # noqa: BLE001  the hub goes on
            _log.warning("the streams of NATS are looked at later: %s: %.300s", type(error).__name__, error)
        if task is None or task.cancelling():
            return  # while it flushes, the client catches a cancellation and goes on
        await asyncio.sleep(wait)
