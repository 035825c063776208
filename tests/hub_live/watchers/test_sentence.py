"""A watcher told as one sentence, in English and German."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from contracts.phrases import Phrase, read_phrases
from hub_live.watchers.definition import WatchedValue, WatcherRequest
from hub_live.watchers.words.parts import condition_of, predicate_of
from hub_live.watchers.words.sentence import plain
from hub_web.texts import LANGUAGE, ZONE, text
from tests.hub_live.watchers.watching import STOP, Watching

DISK, PLATTE = "System disk (nas, now 99 %)", "System: Festplatte (nas, jetzt 99 %)"
TELL = [{"notify": "Look: {disk} %"}]
SENTENCES = [
    (
        {"predicate": "disk > 95", "then": [{"call": STOP, "arguments": {"node": "camera"}}, *TELL]},
        (f"When {DISK} goes above 95 %: Camera: Stop (Node camera) (nas), then tell me “Look: {{disk}} %”."),
        (
            f"Wenn {PLATTE} über 95 % steigt: Camera: Stopp (Node camera) (nas), "
            f"dann melde es mir: „Look: {{disk}} %“."
        ),
    ),
    (
        {"predicate": 'disk and time between "22:00" and "06:00" for "10m"', "then": TELL},
        (f"When {DISK} is on and it is between 22:00 and 06:00 for 10 min: tell me “Look: {{disk}} %”."),
        (
            f"Wenn {PLATTE} an ist und es zwischen 22:00 und 06:00 Uhr ist, und zwar "
            f"10 min lang: melde es mir: „Look: {{disk}} %“."
        ),
    ),
    (
        {"predicate": "disk * 2 > 1", "then": [{"notify": "**x**", "after": "90m", "if_still": True}]},
        "When disk ∗ 2 > 1 becomes true: if it is still so after 1 h 30 min, tell me “∗∗x∗∗”.",
        "Wenn disk ∗ 2 > 1 wahr wird: wenn es nach 1 h 30 min noch so ist, melde es mir: „∗∗x∗∗“.",
    ),
    (
        {"topics": {}, "schedule": "every weekday at 7", "then": [{"notify": "Up!"}]},
        "On weekdays at 07:00: tell me “Up!”.",
        "Werktags um 07:00: melde es mir: „Up!“.",
    ),
    (
        {"schedule": "30 min before sunset", "predicate": 'disk == "open"', "then": [{"notify": "Dark"}]},
        f"Every day 30 min before sunset, if {DISK} is open: tell me “Dark”.",
        f"Jeden Tag 30 min vor Sonnenuntergang, falls {PLATTE} offen ist: melde es mir: „Dark“.",
    ),
    (
        {"predicate": 'mean(disk, "10m") >= 5', "instruction": "Be wise.", "allow": [{"path": STOP}]},
        (
            f"When the mean of {DISK} within 10 min reaches 5 %: a model decides what to do, "
            "and may use Camera: Stop (nas): Be wise."
        ),
        (
            f"Wenn der Mittelwert von {PLATTE} in 10 min auf 5 % steigt: ein Modell "
            "entscheidet, was zu tun ist, und darf benutzen: Camera: Stopp (nas). Be wise."
        ),
    ),
]


@pytest.mark.parametrize(("given", "english", "german"), SENTENCES)
async def test_a_watcher_is_told_as_one_sentence(
    watching: Watching, given: dict[str, Any], english: str, german: str
) -> None:
    await watching.disk(99, unit="%")
    given = {"name": "x", "topics": {"disk": watching.topic()}, **given}
    request = WatcherRequest.model_validate(given)
    watchers = watching.home.hub.live.watchers
    said = watchers.views.naming(watching.home.hub.registry.admin.id, with_values=True).sentence(request)
    assert plain(said) == english
    before = LANGUAGE.set("de")
    assert plain(text.message(said)) == german
    LANGUAGE.reset(before)


async def test_every_face_shows_it_and_a_skill_says_its_calls_in_each_language(watching: Watching) -> None:
    await watching.add(predicate="disk > 95")
    shown = await watching.show()
    assert shown["sentence"].startswith("When **System disk** (nas) goes above **95**: a model decides")
    assert shown["phrases"]["sentence"]["template"] == "When {condition}: {steps}."
    words = Phrase.said({"en": "turn on the lamp", "de": "schalte die Lampe ein"})
    before = LANGUAGE.set("de")
    assert (words, text.message(words)) == ("turn on the lamp", "schalte die Lampe ein")
    LANGUAGE.reset(before)


async def test_a_state_that_is_a_word_is_told_as_one_says_it(watching: Watching) -> None:
    request = WatcherRequest.model_validate(
        {
            "name": "x",
            "topics": {"lamp": watching.topic("lamp")},
            "predicate": 'lamp == "ON"',
            "then": [{"notify": "On"}],
        }
    )
    said = watching.home.hub.live.watchers.views.naming(watching.home.hub.registry.admin.id).sentence(request)
    before = LANGUAGE.set("de")
    assert plain(text.message(said)) == "Wenn System: Lamp (nas) an ist: melde es mir: „On“."
    LANGUAGE.reset(before)


async def test_why_it_fired_is_told_in_words_in_the_language_and_time_of_who_reads(
    watching: Watching,
) -> None:
    rule: dict[str, Any] = {"predicate": 'disk > 95 and time >= "00:00"', "then": [{"notify": "Full"}]}
    await watching.add(**rule, instruction=None, on_change=None, allow=None)
    for value in (50, 96):
        await watching.disk(value, unit="%")
    [entry] = await watching.decided(1)
    reason = read_phrases(entry)["reason"]
    assert reason.startswith("Because System disk (nas, 96 %) is above 95 % and it is after 00:00, since ")
    tokyo = ZoneInfo("Asia/Tokyo")
    language, zone = LANGUAGE.set("de"), ZONE.set(tokyo)
    there = text.at(tokyo, datetime.fromisoformat(entry["at"]))
    expected = f"Weil System: Festplatte (nas, 96 %) über 95 % ist und es nach 00:00 Uhr ist, seit {there}"
    assert text.message(reason) == f"{expected}. Gemeldet: Full"
    LANGUAGE.reset(language), ZONE.reset(zone)


@pytest.mark.parametrize(
    "predicate",
    ["x < 5000000000", "x > 21.123456", "x > 0.00001", 'x == "open" for "90s"', "x >= 21", "x < -18.5"],
)
def test_the_parts_of_a_condition_make_that_very_condition_again(predicate: str) -> None:
    parts = condition_of(predicate, {"x": WatchedValue(topic="a/b")})
    assert parts is not None
    assert predicate_of(parts) == predicate


def test_a_text_of_digits_has_no_control_that_makes_a_number_of_it() -> None:
    assert condition_of('x == "5"', {"x": WatchedValue(topic="a/b")}) is None
