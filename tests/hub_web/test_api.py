"""What pages hear of turns and of errors."""

import asyncio
from typing import Any

from chat.tasks import open_tasks
from chat.turns import Turn
from contracts.chat.messages import ChatRequest, ConfirmationWanted, TurnError, TurnFinal
from contracts.errors import NoModel, NotFound
from contracts.phrases import for_people
from hub_web.feeds import Answered, Feed
from hub_web.texts import LANGUAGE, text


class _Api:
    """Gives a turn, or the error of one."""

    def __init__(self, turn: Turn | Exception) -> None:
        self.approved: list[str] = []
        self._turn = turn

    async def ask(self, _: ChatRequest) -> Turn:
        if isinstance(self._turn, Exception):
            raise self._turn
        return self._turn

    async def __call__(self, _: object, turn: str, question: str, *, approve: bool) -> None:
        self.approved.append(question)


async def test_a_question_that_is_closed_is_asked_by_no_other_page() -> None:
    final = TurnFinal(answer="It is open.", mode="online")

    turn = Turn(ChatRequest(message="Unlock the door"), user="anna", device=None)
    for question, expires_s in (("late", 0), ("door", 600)):
        turn.emit(
            ConfirmationWanted(
                id=question,
                turn=turn.id,
                device="pc",
                device_name="PC",
                method="DoorSkill.unlock",
                arguments={},
                expires_s=expires_s,
            )
        )

    async with open_tasks() as tasks:
        api: Any = _Api(turn)
        feed = Feed("anna", "talk", "Unlock the door")
        async with asyncio.timeout(60):
            tasks.create_task(feed.run(api, {"message": "Unlock the door"}))
            other = feed.follow()
            asked = await anext(other)
            assert isinstance(asked, ConfirmationWanted)
            assert (asked.id, asked.expires_s < 600) == ("door", True)
            await feed.answer(api, "door", approve=True)
            assert await anext(other) == Answered(id="door")
            turn.emit(final)
            turn.close()
            assert [each async for each in feed.follow()] == [Answered(id="door"), final]
            assert api.approved == ["door"]
            # An answer whose turn has ended by then takes its end from nobody.
            await feed.answer(api, "door", approve=True)
            assert feed.events[-1] == final


async def test_a_turn_that_no_model_answers_says_why_without_what_to_type() -> None:
    hint = "You can say: {examples}. 'strawberry models add' adds one."
    api: Any = _Api(NoModel("no model is configured", hint=hint, examples="Turn on the lamp"))
    feed = Feed("anna", "talk", "hello")
    await feed.run(api, {"message": "hello"})
    (error,) = feed.events
    assert isinstance(error, TurnError)
    assert (error.code, error.hint) == ("no_model", "You can say: Turn on the lamp.")
    await feed.run(api, {"message": ""})
    assert isinstance(feed.events[-1], TurnError)
    assert feed.events[-1].code == "refused"


def test_an_error_of_the_hub_is_shown_in_the_language_of_its_page() -> None:
    hint = "'strawberry watchers list' lists them."
    error = NotFound("there is no watcher {name!r}{nearest}", name="x", nearest="", hint=hint)
    token = LANGUAGE.set("de")
    try:
        assert text.sentence(error.message) == "Es gibt keinen Wächter „x“."
    finally:
        LANGUAGE.reset(token)
    assert for_people(error.hint) == ""
    used_up = "More come back over the day. tokens_per_day in [watchers] of strawberry.toml sets it."
    assert for_people(used_up) == "More come back over the day."
