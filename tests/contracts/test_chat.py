"""Whom a message can be for."""

import pytest

from contracts.chat import AGENTS, check_agent
from contracts.errors import NotFound


@pytest.mark.parametrize("name", AGENTS)
def test_every_name_of_the_agent_can_be_asked(name: str) -> None:
    check_agent(name)


def test_who_asks_for_an_unknown_agent_is_told_all_that_there_are() -> None:
    with pytest.raises(NotFound, match="no agent 'cook'") as refusal:
        check_agent("cook")
    assert refusal.value.hint == f"The agents are: {', '.join(AGENTS)}."
