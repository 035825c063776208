"""Question to the hub whether this device answers to a wake word, where others may have heard it louder."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from bus.link import Link, Message
from bus.rpc import EpochClock
from contracts import topics
from contracts.devices.voice import VERDICT_S, WakeHeard
from contracts.errors import Disconnected
from identity.envelope import Seal, unseal
from identity.ids import uuid7
from identity.keys import PublicKey

_log = logging.getLogger(__name__)


class WakeWords:
    """Asks the hub; without an answer in time the device answers to the wake word itself.

    Args:
        clock: The hub's time.
        hub_is_online: Whether there is anybody to ask.
        wait_s: How long a verdict is waited for.
    """

    def __init__(
        self,
        link: Link,
        seal: Seal,
        *,
        device: str,
        hub_key: PublicKey,
        clock: EpochClock,
        hub_is_online: Callable[[], bool],
        wait_s: float = VERDICT_S,
    ) -> None:
        self._link = link
        self._seal = seal
        self._device = device
        self._hub_key = hub_key
        self._clock = clock
        self._hub_is_online = hub_is_online
        self._wait_s = wait_s
        self._open: dict[str, asyncio.Future[bool]] = {}

    async def listen(self) -> None:
        """Subscribe. Call it before the link connects for the first time."""
        topic = topics.WAKE_VERDICT.build(device=self._device)
        await self._link.subscribe(topic, self._on_verdict, qos=topics.WAKE_VERDICT.qos)

    async def may_answer(self, word: str, loudness: float) -> bool:
        """Return whether this device answers to a wake word.

        Args:
            loudness: How loud it was heard; see `voice.sound.audio.level`.
        """
        if not (self._link.connected and self._hub_is_online()):
            return True
        topic, question = topics.WAKE_HEARD.build(device=self._device), uuid7()
        at = datetime.fromtimestamp(self._clock.now(), UTC)
        heard = WakeHeard(id=question, word=word, loudness=min(0.0, max(-96.0, loudness)), at=at)
        self._open[question] = asyncio.get_running_loop().create_future()
        try:
            with suppress(TimeoutError, Disconnected):
                async with asyncio.timeout(self._wait_s):
                    payload = self._seal.seal(topic, heard)
                    await self._link.publish(topic, payload, qos=topics.WAKE_HEARD.qos)
                    return await self._open[question]
            _log.debug("the hub did not say who answers to %s", word)
            return True
        finally:
            del self._open[question]

    def _on_verdict(self, message: Message) -> None:
        if message.retain or not message.payload:
            return
        document = unseal(self._seal.hub_id, message.topic, message.payload, self._hub_key)
        verdict = topics.WAKE_VERDICT.parse(document)
        waiting = self._open.get(verdict.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(verdict.answer)
