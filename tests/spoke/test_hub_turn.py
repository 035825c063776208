"""Asking the hub: one time for all of it, wherever it falls silent, and none for a hub known to be silent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

import pytest

from chat.tasks import open_tasks
from chat.turns import Turn
from contracts.chat.messages import ChatRequest, TurnEvent, TurnFinal
from contracts.errors import NotServed, StrawberryError, Unsure
from identity.keys import KeyPair
from spoke.chat.hub_health import HubHealth
from spoke.chat.hub_turn import HubTurns
from spoke.membership.hub_http import HubHttp
from spoke.settings import ChatSettings
from tests.spoke.faltering import CANCEL, CHAT, PUSH, FalteringHub, SetClock
from tests.spoke.home import wait_for
from tests.spoke.hub import CARD

HUB_S = 4_000.0
"""So long that only the clock that is set ends a wait."""

CHECK_S = 1e6
NEVER_S = 1e9

STEPS = (PUSH, CARD, CHAT, CANCEL)
"""Each has a quarter."""


@dataclass
class Asker:
    """Asks the hub as a spoke does.

    Attributes:
        heard: The last answer of the hub's.
        begun: How many answers have begun.
        by_hub: What the hub said that refused last.
    """

    hub: FalteringHub
    turns: HubTurns
    clock: SetClock
    heard: str = ""
    begun: int = 0
    by_hub: str | None = None

    async def ask(self) -> type[Exception] | None:
        """Ask something; gives what the hub does with it, None for answering."""
        told: list[TurnEvent] = []

        async def began() -> None:
            self.begun += 1

        try:
            turn = Turn(ChatRequest(message="hello", turn="t1", conversation="c1"), user="here")
            await self.turns.run(turn, told.append, began=began)
        except (NotServed, Unsure) as refusal:
            assert told == []
            self.by_hub = getattr(refusal, "by_hub", None)
            return type(refusal)
        assert isinstance(told[-1], TurnFinal)
        self.heard = told[-1].answer
        return None

    async def ask_while_it_hangs(self, *steps: str) -> type[Exception] | None:
        """Ask something, and let the time of each of these steps pass once the hub hangs there."""
        start, before = self.clock(), len(self.hub.seen)

        def hangs(step: str) -> bool:
            return step in self.hub.seen[before:]

        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(self.ask())
            for step in steps:
                await wait_for(partial(hangs, step), f"the hub to hang at {step}")
                self.clock.set(start + HUB_S * (STEPS.index(step) + 1) / 4)
            # Not by the clock that is set.
            await wait_for(asking.done, "it to be clear who answers")
        return asking.result()


@pytest.fixture
async def hub() -> AsyncIterator[FalteringHub]:
    async with FalteringHub().serving() as hub:
        yield hub


@asynccontextmanager
async def asking(hub: FalteringHub) -> AsyncIterator[Asker]:
    """Somebody who asks a hub."""
    settings = ChatSettings(hub_s=HUB_S, check_s=CHECK_S, retry_s=NEVER_S, retry_max_s=NEVER_S)

    async def push() -> None:
        with suppress(StrawberryError):
            await HubHttp(hub.url).request("GET", PUSH, timeout_s=HUB_S)

    async with open_tasks() as tasks:
        health = HubHealth(lambda: hub.enrolment, key=KeyPair.generate(), settings=settings, tasks=tasks)
        turns = HubTurns(health, settings=settings, push=push)
        yield Asker(hub, turns, SetClock())


async def test_a_hub_that_is_there_is_told_the_news_looked_for_and_asked(hub: FalteringHub) -> None:
    async with asking(hub) as asker:
        assert await asker.ask() is None
        assert (asker.heard, asker.begun, hub.seen) == ("From the hub.", 1, [PUSH, CARD, CHAT])


@pytest.mark.parametrize(
    ("hangs", "seen", "outcome"),
    [
        ([PUSH], [PUSH, CARD, CHAT], None),
        ([CARD], [PUSH, CARD], NotServed),
        ([CHAT], [PUSH, CARD, CHAT, CANCEL], NotServed),
        ([CHAT, CANCEL], [PUSH, CARD, CHAT, CANCEL], Unsure),
        ([PUSH, CARD], [PUSH, CARD], NotServed),
        ([PUSH, CHAT], [PUSH, CARD, CHAT, CANCEL], NotServed),
        ([PUSH, CHAT, CANCEL], [PUSH, CARD, CHAT, CANCEL], Unsure),
    ],
)
async def test_wherever_the_hub_hangs_who_answers_is_clear_within_one_time(
    hub: FalteringHub, hangs: list[str], seen: list[str], outcome: type[Exception] | None
) -> None:
    hub.hangs = set(hangs)
    async with asking(hub) as asker:
        # The clock is set as far as the step may last, and no further: what lasts longer lasts for ever.
        assert await asker.ask_while_it_hangs(*hangs) is outcome
        assert hub.seen == seen
        assert asker.begun == (outcome is None)


@pytest.mark.parametrize("state", ["running", "finished", "cancelled"])
async def test_what_the_hub_has_begun_is_in_doubt(hub: FalteringHub, state: str) -> None:
    hub.breaks, hub.state = {CHAT}, state
    async with asking(hub) as asker:
        assert await asker.ask() is Unsure


async def test_what_the_hub_refuses_is_taken_back_unless_it_says_that_it_ran_nothing(
    hub: FalteringHub,
) -> None:
    async with asking(hub) as asker:
        for status, asked in (
            (401, [PUSH, CARD, CHAT]),
            (503, [PUSH, CARD, CHAT]),
            (500, [PUSH, CARD, CHAT, CANCEL]),
        ):
            hub.status = status
            hub.seen.clear()
            assert await asker.ask() is NotServed
            assert hub.seen == asked
            assert asker.by_hub == ("refused" if status == 401 else None)


@pytest.mark.parametrize("step", [CARD, CHAT])
async def test_a_hub_that_fell_silent_is_not_touched_again_by_a_message(hub: FalteringHub, step: str) -> None:
    hub.hangs = {step}
    async with asking(hub) as asker:
        assert await asker.ask_while_it_hangs(step) is NotServed
        seen = list(hub.seen)
        # It would answer now, and has not been tried again yet.
        hub.hangs.clear()
        assert [await asker.ask(), await asker.ask()] == [NotServed, NotServed]
        assert hub.seen == seen


async def test_a_machine_that_is_found_to_be_off_after_a_while_is_not_waited_for_again(
    hub: FalteringHub,
) -> None:
    hub.hangs = hub.breaks = {CARD}
    async with asking(hub) as asker, asyncio.TaskGroup() as tasks:
        start = asker.clock()
        answering = tasks.create_task(asker.ask())
        await wait_for(lambda: CARD in hub.seen, "the hub to be looked for")
        asker.clock.set(start + 0.4 * HUB_S)
        hub.go.set()
        assert await answering is NotServed
        seen = list(hub.seen)
        assert await asker.ask() is NotServed
        assert hub.seen == seen


async def test_a_hub_that_refuses_connections_is_tried_with_each_message() -> None:
    hub = FalteringHub()
    async with asking(hub) as asker:
        assert await asker.ask() is NotServed
        async with hub.serving():
            assert await asker.ask() is None
