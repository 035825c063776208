"""What the hub itself understands without a model: timers, reminders, lists, memory, help."""

import re

import pytest

from spoke import Skill, skill_method
from tests.hub_agent.home import Home, says


class LampSkill(Skill):
    """A lamp."""

    @skill_method(idempotent=True)
    def turn_on(self) -> None:
        """Turn the lamp on."""

    @skill_method(idempotent=True)
    def turn_off(self) -> None:
        """Turn the lamp off."""


async def answer(home: Home, text: str, **more: object) -> str:
    async with home.client() as client:
        response = await client.post("/v1/chat/completions", json=says(text, **more))
    body = response.json()
    return str(body["choices"][0]["message"]["content"] if response.is_success else body["error"]["message"])


ENGLISH = (
    ("set a timer for 5 minutes", "Timer set for 5 min"),
    ("set a pizza timer for 20 minutes", "izza set for 20 min"),
    ("set a timer for 1 hour and 30 minutes called bread", "bread set for 1 h 30 min"),
    ("set a 45 second timer", "Timer set for 45 s"),
    ("how much time is left on the pizza timer", "pizza: (19|20) min"),
    ("add 5 minutes to the pizza timer", "pizza now has 2[45] min"),
    ("how much time is left", "pizza"),
    ("pause the pizza timer", "pizza is paused, with 2[45] min"),
    ("how much time is left", "Paused: pizza"),
    ("resume the timer", "pizza goes on, with 2[45] min"),
    ("cancel the pizza timer", "."),
    ("cancel all timers", "Cancelled timers: 3"),
    ("how much time is left on the timer", "No timer is running"),
    ("remind me in 10 minutes to check the oven", "I will remind you in 10 min"),
    ("remind me tomorrow at 8 to call the bank", "I will remind you tomorrow at 08:00"),
    ("remind me at 8 pm to feed the cat", "at 20:00"),
    ("in 20 minutes turn on the lamp", "I will do that in 20 min"),
    ("please turn the lamp on in an hour", "in 1 h"),
    ("turn on the lamp in half an hour", "in 30 min"),
    ("how much time is left", "turn on the lamp: (19|20) min"),
    ("add milk to the shopping list", "Added milk to the list"),
    ("put eggs on the list", "eggs"),
    ("what is on the shopping list", "milk and eggs"),
    ("remove milk from the shopping list", "Took milk off the list"),
    ("what's on my list", "^eggs"),
    ("remember that the bins go out on Monday", "I will remember that"),
    ("what do you know about the bins", "the bins go out on Monday"),
    ("help", "turn on"),
    ("what can I say", "You can say"),
)
GERMAN = (
    ("stelle einen Timer auf 5 Minuten", "Timer gestellt: 5 min"),
    ("stelle einen Pizza Timer auf zwanzig Minuten", "Pizza gestellt: 20 min"),
    ("wie lange läuft der Pizza Timer noch", "Pizza: (19|20) min"),
    ("halte den Pizza Timer an", "Pizza ist pausiert"),
    ("brich alle Timer ab", "Gelöschte Timer: 2"),
    ("erinnere mich morgen um 8 Uhr an den Müll", "um 08:00 Uhr"),
    ("schalte in zwanzig Minuten die Lampe an", "Das mache ich in 20 min"),
    ("mach das Licht in einer halben Stunde an", "in 30 min"),
    ("schalte die Lampe in 2 Stunden ein", "in 2 h"),
    ("setze Milch auf die Einkaufsliste", "Milch steht auf der Liste"),
    ("was steht auf der Einkaufsliste", "Milch"),
    ("streiche Milch von der Einkaufsliste", "gestrichen"),
    ("merk dir dass Oma am Montag kommt", "Das merke ich mir"),
    ("was weißt du über Oma", "Oma am Montag kommt"),
    ("was kann ich sagen", "Du kannst zum Beispiel sagen"),
)


@pytest.mark.parametrize(("language", "spoken"), [("en", ENGLISH), ("de", GERMAN)])
async def test_everyday_sentences_of_the_hub(
    home: Home, language: str, spoken: tuple[tuple[str, str], ...]
) -> None:
    await home.device("Lamp", LampSkill())
    async with home.client() as client:
        assert (await client.patch("/api/session", json={"language": language})).is_success
    missed = [
        (text, said) for text, wanted in spoken if not re.search(wanted, said := await answer(home, text))
    ]
    assert missed == []
