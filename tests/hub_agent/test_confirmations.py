import asyncio

import pytest

from chat.questions import Questions
from contracts.errors import Conflict, NotFound
from hub_agent.calls.confirmations import Act, ConfirmationTokens


async def _asked(questions: Questions) -> tuple[str, "asyncio.Task[bool]"]:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.get_running_loop().create_task(
        questions.ask("ann", "turn", expires_s=30, tell=told.set_result)
    )
    return await told, task


async def test_an_answer_counts_once() -> None:
    questions = Questions()
    question, waiting = await _asked(questions)
    questions.answer("ann", "turn", question, approve=False)
    with pytest.raises(Conflict):
        questions.answer("ann", "turn", question, approve=True)
    assert await waiting is False
    with pytest.raises(Conflict):
        questions.answer("ann", "turn", question, approve=True)


async def test_nobody_else_can_answer_nor_learn_that_there_is_a_question() -> None:
    questions = Questions()
    question, waiting = await _asked(questions)
    for user, turn in (("bob", "turn"), ("ann", "other")):
        with pytest.raises(NotFound):
            questions.answer(user, turn, question, approve=True)
    questions.answer("ann", "turn", question, approve=False)
    assert await waiting is False
    with pytest.raises(NotFound):
        questions.answer("bob", "turn", question, approve=True)


async def test_a_question_ends_with_its_turn() -> None:
    questions = Questions()
    question, waiting = await _asked(questions)
    waiting.cancel()
    await asyncio.wait([waiting])
    with pytest.raises(Conflict):
        questions.answer("ann", "turn", question, approve=True)


ACT = Act(user="ann", device="lock", method="LockSkill.unlock", arguments="abc")


@pytest.mark.parametrize(
    "other",
    [
        Act(user="bob", device="lock", method="LockSkill.unlock", arguments="abc"),
        Act(user="ann", device="safe", method="LockSkill.unlock", arguments="abc"),
        Act(user="ann", device="lock", method="LockSkill.lock", arguments="abc"),
        Act(user="ann", device="lock", method="LockSkill.unlock", arguments="xyz"),
    ],
)
def test_a_confirmation_token_is_good_for_nothing_else(other: Act) -> None:
    tokens = ConfirmationTokens(expires_s=60)
    token = tokens.issue(ACT)
    with pytest.raises(Conflict):
        tokens.redeem(token, other)
    tokens.redeem(token, ACT)


def test_a_confirmation_token_expires() -> None:
    now = [0.0]
    tokens = ConfirmationTokens(expires_s=60, clock=lambda: now[0])
    token = tokens.issue(ACT)
    now[0] = 60.0
    with pytest.raises(Conflict, match="expired"):
        tokens.redeem(token, ACT)
