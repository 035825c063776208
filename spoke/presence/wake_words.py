"""Question to the hub whether this device answers to a wake word, where others may have heard it louder."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
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


@dataclass(eq=False)
class WakeWords:
    """Asks the hub; without an answer in time the device answers to the wake word itself.

    Attributes:
        clock: The hub's time.
        hub_is_online: Whether there is anybody to ask.
        wait_s: How long a verdict is waited for.
    """

    link: Link
    seal: Seal
    _: KW_ONLY
    device: str
    hub_key: PublicKey
    clock: EpochClock
    hub_is_online: Callable[[], bool]
    wait_s: float = VERDICT_S
    _open: dict[str, asyncio.Future[bool]] = field(default_factory=dict, init=False)

    async def listen(self) -> None:
        """Subscribe. Call it before the link connects for the first time."""
        topic = topics.WAKE_VERDICT.build(device=self.device)
        await self.link.subscribe(topic, self._on_verdict, qos=topics.WAKE_VERDICT.qos)

    async def may_answer(self, word: str, loudness: float) -> bool:
        """Return whether this device answers to a wake word.

        Args:
            loudness: How loud it was heard; see `voice.sound.audio.level`.
        """
        if not (self.link.connected and self.hub_is_online()):
            return True
        topic, question = topics.WAKE_HEARD.build(device=self.device), uuid7()
        at = datetime.fromtimestamp(self.clock.now(), UTC)
        heard = WakeHeard(id=question, word=word, loudness=min(0.0, max(-96.0, loudness)), at=at)
        self._open[question] = asyncio.get_running_loop().create_future()
        try:
            with suppress(TimeoutError, Disconnected):
                async with asyncio.timeout(self.wait_s):
                    payload = self.seal.seal(topic, heard)
                    await self.link.publish(topic, payload, qos=topics.WAKE_HEARD.qos)
                    return await self._open[question]
            _log.debug("the hub did not say who answers to %s", word)
            return True
        finally:
            del self._open[question]

    def _on_verdict(self, message: Message) -> None:
        if message.retain or not message.payload:
            return
        document = unseal(self.seal.hub_id, message.topic, message.payload, self.hub_key)
        verdict = topics.WAKE_VERDICT.parse(document)
        waiting = self._open.get(verdict.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(verdict.answer)
