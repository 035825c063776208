"""Quotas of tokens: what each may ask for in a time and at once, with a reserve for people.

They count by the holder of a token, not by its owner: a device that asks without end leaves the owner's other
devices and programs, and the owner, as they were.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from contracts.claims import Claims
from contracts.errors import TooManyRequests
from contracts.rates import Clock, Slots, TokenBucket, TokenBuckets
from hub_agent import limits
from hub_agent.settings import QuotaSettings

_HOUR_S: Final = 3_600
_DAY_S: Final = 24 * _HOUR_S


class Quota:
    """Bursts of a token are served, a steady flood is not.

    Args:
        per_minute: What one token may have a minute in the long run.
        burst: What it may have at once.
        shares: All tokens together may have so many times as much, the last share of it only people.
    """

    def __init__(
        self,
        *,
        per_minute: float,
        burst: int,
        shares: int = limits.HOME_SHARES,
        clock: Clock = time.monotonic,
    ) -> None:
        self._per_second = per_minute / 60
        self._holders = TokenBuckets(
            burst=burst, per_second=self._per_second, most=limits.MOST_HOLDERS, clock=clock
        )
        self._all = TokenBucket(burst=shares * burst, per_second=shares * self._per_second, clock=clock)
        self._reserve = burst

    def spend(self, claims: Claims, *, person: bool) -> None:
        """Count one request.

        Args:
            person: Whether a person asks, who may use the reserve.

        Raises:
            TooManyRequests: If this token, or all together, have had too many.
        """
        keep = 0 if person else self._reserve
        if not self._holders.take(claims.holder) or not self._all.take(keep=keep):
            wait_s = max(1, round(1 / self._per_second))
            raise TooManyRequests(
                "too many messages in a short time",
                wait_s=wait_s,
                hint="Try again in {wait_s} s.",
                retry_after_s=wait_s,
            )


class DailyVolume:
    """How many turns, and how much text, may be recorded for one device or program in a day.

    One that was away for long may hand in more at once.

    Args:
        rows: Turns a day in the long run.
        size: Bytes a day in the long run.
    """

    def __init__(
        self, *, rows: int = 10_000, size: int = 16 * 1024 * 1024, clock: Clock = time.monotonic
    ) -> None:
        self._rows = _daily(rows, clock)
        self._bytes = _daily(size, clock)

    def spend(self, key: str, *, rows: int, size: int) -> None:
        """Count what is to be recorded.

        Raises:
            TooManyRequests: If that is more than is left; nothing is counted then.
        """
        of_rows, of_bytes = self._rows.of(key), self._bytes.of(key)
        if not of_rows.has(rows) or not of_bytes.has(size):
            raise TooManyRequests(
                "too much is to be recorded in a day", hint="Try again in an hour.", retry_after_s=_HOUR_S
            )
        of_rows.charge(rows)
        of_bytes.charge(size)

    def charge(self, key: str, size: int) -> None:
        self._bytes.of(key).charge(size)


def _daily(amount: float, clock: Clock) -> TokenBuckets:
    return TokenBuckets(
        burst=limits.RECORDED_DAYS * amount, per_second=amount / _DAY_S, most=limits.MOST_HOLDERS, clock=clock
    )


class FairQueue:
    """Lets so much happen at once, and the rest wait: tokens that wait have their turn one after another.

    Args:
        each: What one token may do at once. What lasts does not keep the hub busy, so it counts for a moment.
        lasting: What one token may do at once, however long it lasts.
        waiting: How much of one token may wait.
    """

    def __init__(self, *, each: int, lasting: int, waiting: int) -> None:
        self._slots = Slots(each=each, total=limits.HOME_SHARES * each, reserved=each)
        self._lasting = Slots(each=lasting)
        self._most_waiting = waiting
        self._waiting: OrderedDict[str, deque[tuple[asyncio.Future[None], bool]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, claims: Claims, *, person: bool) -> AsyncIterator[None]:
        """Run the block as soon as it is the turn of this token.

        Args:
            person: Whether a person asks, who may use the reserve.

        Raises:
            TooManyRequests: If too much of this token waits already.
        """
        holder = claims.holder
        if holder in self._waiting or not self._take(holder, person=person):
            await self._wait(holder, person=person)
        is_short = True

        def make_room() -> None:
            nonlocal is_short
            if is_short:
                is_short = False
                self._slots.give_back(holder)
                self._wake()

        lasts = asyncio.get_running_loop().call_later(limits.SHORT_CALL_S, make_room)
        try:
            yield
        finally:
            lasts.cancel()
            self._lasting.give_back(holder)
            make_room()
            self._wake()

    def _take(self, holder: str, *, person: bool) -> bool:
        if not self._lasting.take(holder):
            return False
        if self._slots.take(holder, person=person):
            return True
        self._lasting.give_back(holder)
        return False

    async def _wait(self, holder: str, *, person: bool) -> None:
        own = self._waiting.setdefault(holder, deque())
        if len(own) >= self._most_waiting:
            raise TooManyRequests("too many requests of this token wait", hint="Wait for their answers.")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        own.append((turn, person))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                own.remove((turn, person))
                self._forget_empty(holder)
            else:
                self._slots.give_back(holder)
                self._lasting.give_back(holder)
            self._wake()
            raise

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _wake(self) -> None:
        """Hand out what is free to those that wait, one for each token at a time."""
        for holder in tuple(self._waiting):
            turn, person = self._waiting[holder][0]
            # One that was cancelled is about to leave, and wakes the others then.
            if not turn.done() and self._take(holder, person=person):
                self._waiting[holder].popleft()
                self._waiting.move_to_end(holder)
                self._forget_empty(holder)
                turn.set_result(None)

    def _forget_empty(self, holder: str) -> None:
        if not self._waiting[holder]:
            del self._waiting[holder]


class Quotas:
    """What the tokens of a hub may use.

    Attributes:
        messages: Messages for a model.
        sentences: All messages. Sentences cost next to nothing, so this is far above what a person says, and
            no number of devices uses it up for the others.
        turns: Open turns of a model.
        sentence_turns: Open turns of a sentence.
        calls: Direct calls.
        programs: Programs that are run directly.
    """

    def __init__(self, settings: QuotaSettings) -> None:
        self.messages = Quota(per_minute=settings.per_minute, burst=settings.burst)
        self.sentences = Quota(
            per_minute=10 * settings.per_minute, burst=10 * settings.burst, shares=limits.MOST_HOLDERS
        )
        self.turns = Slots(
            each=settings.open_turns,
            total=limits.HOME_SHARES * settings.open_turns,
            reserved=settings.open_turns,
        )
        self.sentence_turns = Slots(each=settings.open_turns)
        self.calls = FairQueue(each=settings.calls, lasting=settings.lasting, waiting=settings.waiting)
        self.programs = FairQueue(each=settings.calls, lasting=settings.programs, waiting=settings.waiting)
