"""What people say without a model, in words that no skill declares."""

import pytest

from agent_core import limits
from agent_core.search.catalogue import Target
from agent_core.sentences.index import SentenceCall, SentenceChoice, SentenceIndex
from agent_core.sentences.kinds import kind_of
from agent_core.sentences.understanding import Said, Understanding
from tests.agent_core.house import method

_NO_ARGUMENTS = {"properties": {}, "needed": 0, "idempotent": True}


def target(device: str, skill: str, name: str, **options: object) -> Target:
    made = method(name, "Do it.", **{**_NO_ARGUMENTS, **options})  # type: ignore[arg-type]
    return Target(f"devices.{device}.{skill}.{name}", device, device.upper(), skill, made)


class Home:
    """Devices with skills, and what a sentence on one of them calls."""

    def __init__(self) -> None:
        self.declared = SentenceIndex()
        self.understanding = Understanding(self.declared)

    def put(self, device: str, skill: str, *names: str, area: str = "", **options: object) -> None:
        found = [target(device, skill, name, **options) for name in names]
        self.declared.put(found)
        places = (area,) if area else ()
        self.understanding.intents.put(found, source=device, kind=None, names=(device,), places=places)

    async def hears(
        self, text: str, *, on: str = "pc", language: str = "en", here: str | None = None
    ) -> SentenceCall | SentenceChoice | None:
        await self.understanding.warm(language)
        said = Said(text, language, on, here, lambda _: True, lambda *_: True, lambda *_: None)
        return await self.understanding.meaning(said, is_patient=True)

    async def called(self, text: str, **options: str) -> str | None:
        found = await self.hears(text, **options)
        return found.target.path.removeprefix("devices.") if isinstance(found, SentenceCall) else None


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Home:
    for each in ("INTENT_WAIT_S", "FIRST_INTENT_WAIT_S"):
        monkeypatch.setattr(limits, each, 60.0)  # a busy machine is no reason to fail
    made = Home()
    made.put("pc", "LampSkill", "turn_on", "turn_off")
    return made


@pytest.mark.parametrize(
    ("language", "text", "wanted"),
    [
        ("en", "would you mind turning on the lamp please", "pc.LampSkill.turn_on"),
        ("en", "lights off", "pc.LampSkill.turn_off"),
        ("de", "kannst du bitte mal das Licht ausmachen", "pc.LampSkill.turn_off"),
        ("en", "trun off the lmap", "pc.LampSkill.turn_off"),
        ("es", "descnoectar las lámparas", "pc.LampSkill.turn_off"),
        ("en", "what is the capital of France", None),
        ("en", "tell me a joke about lamps", None),
        ("en", "lamp", None),
    ],
)
async def test_a_lamp_is_switched_in_everyday_words_and_by_nothing_else(
    home: Home, language: str, text: str, wanted: str | None
) -> None:
    assert await home.called(text, language=language) == wanted


async def test_a_room_chooses_among_lamps_and_all_of_them_is_a_question(home: Home) -> None:
    home.put("pi", "LampSkill", "turn_on", "turn_off", area="Kitchen")
    assert await home.called("turn on the kitchen lights") == "pi.LampSkill.turn_on"
    assert await home.called("turn on the lights") == "pc.LampSkill.turn_on"
    assert isinstance(await home.hears("turn off all the lights"), SentenceChoice)


@pytest.mark.parametrize(
    ("language", "text", "wanted"),
    [
        ("en", "mute", "mute"),
        ("en", "turn the sound back on", "unmute"),
        ("de", "stumm", "mute"),
        ("de", "mach bitte den Ton aus", "mute"),
        ("en", "mute the lamp", None),
        ("de", "der gute Ton", None),
    ],
)
async def test_the_player_of_the_current_device_is_muted(
    home: Home, language: str, text: str, wanted: str | None
) -> None:
    for device in ("pc", "pi"):
        home.put(device, "MediaSkill", "play", "pause", "mute", "unmute")
    called = await home.called(text, language=language, on="pi")
    assert called == (wanted and f"pi.MediaSkill.{wanted}")


async def test_the_answer_is_in_the_language_that_was_spoken(home: Home) -> None:
    found = await home.hears("allume la lampe", language="fr")
    assert isinstance(found, SentenceCall)
    assert found.answer is not None
    assert found.answer(None).startswith("Allum")


@pytest.mark.parametrize("destructive", [False, True])
async def test_what_may_let_somebody_in_is_asked_where_it_was_misspelt(home: Home, destructive: bool) -> None:
    home.put("pi", "DoorSkill", "lock", "unlock", destructive=destructive)
    assert await home.called("unlock the door") == "pi.DoorSkill.unlock"
    asked = await home.hears("unlok the door")
    assert isinstance(asked, SentenceChoice)
    assert asked.question == "Did you mean: unlock the door?"
    asked = await home.hears("entsperre die Tühr", language="de")
    assert isinstance(asked, SentenceChoice)
    assert asked.question == "Meintest du: entsperre die Tür?"


async def test_free_words_go_to_the_device_that_hears_them_and_no_other(home: Home) -> None:
    item = {"item": {"type": "string"}}
    home.put("pi", "ShoppingListSkill", "add_item", properties=item, needed=1)
    found = await home.hears("add milk to the shopping list", on="pi")
    assert isinstance(found, SentenceCall)
    assert found.arguments == {"item": "milk"}
    assert await home.hears("add milk to the shopping list", on="pc") is None


async def test_free_words_stay_as_they_were_said_where_another_word_is_misspelt(home: Home) -> None:
    item = {"item": {"type": "string"}}
    home.put("pc", "ShoppingListSkill", "add_item", properties=item, needed=1)
    found = await home.hears("agerga pizza en mi lista de la compra", language="es")
    assert isinstance(found, SentenceCall)
    assert found.arguments == {"item": "pizza"}  # and not "pieza", a word that Spanish sentences have


@pytest.mark.parametrize(
    ("language", "text", "timer"),
    [
        ("en", "please cancel the timer", "Timer"),
        ("en", "cancel the pasta timer", "pasta"),
        ("de", "lösche bitte den Nudel-Timer", "Nudel"),
        ("de", "brich den Nudeltimer ab", "Nudel"),
    ],
)
async def test_a_timer_is_cancelled_by_its_name(home: Home, language: str, text: str, timer: str) -> None:
    properties = {"timer": {"type": "string"}}
    home.put("hub", "WatcherSkill", "set_timer", "cancel_timer", properties=properties, needed=1)
    found = await home.hears(text, language=language)
    assert isinstance(found, SentenceCall)
    assert (found.target.method.name, found.arguments) == ("cancel_timer", {"timer": timer})


async def test_another_language_than_the_homes_is_understood_at_its_first_sentence(home: Home) -> None:
    found = await home.hears("kannst du bitte das Licht ausmachen")
    assert isinstance(found, SentenceCall)
    assert (found.target.path, found.language) == ("devices.pc.LampSkill.turn_off", "de")
    assert await home.called("schlate die Lampe ein") == "pc.LampSkill.turn_on"
    offered = home.understanding.examples("en", near="lass die Lampe tanzen", hears=lambda *_: True)
    assert "schalte Lampe ein" in offered


async def test_without_a_match_the_nearest_sentences_are_offered(home: Home) -> None:
    assert await home.hears("make the lamp dance") is None
    nearest = home.understanding.examples("en", near="make the lamp dance", hears=lambda *_: True)
    assert any("lamp" in text for text in nearest)
    assert len(nearest) <= 3


def test_a_skill_is_of_a_kind_by_its_methods_and_its_name() -> None:
    assert kind_of("DeskLampSkill", ["turn_on", "turn_off"]) == "light"
    assert kind_of("PumpSkill", ["turn_on", "turn_off"]) == "switch"
    assert kind_of("PlayerSkill", ["play", "pause"]) == "media_player"
    assert kind_of("NotesSkill", ["list_notes"]) is None


async def test_more_languages_than_a_hub_has_time_for_are_not_loaded(home: Home) -> None:
    understanding = home.understanding
    waiting = [understanding._load(language) for language in ("fr", "it", "es")]
    assert [each.done() for each in waiting] == [False, False, True]
    assert waiting[2].result() is None
    assert await waiting[0] is not None


async def test_a_skill_of_no_kind_does_not_make_the_names_anew(home: Home) -> None:
    await home.understanding.warm("en")
    book, intents = await home.understanding._load("en"), home.understanding.intents
    assert book is not None
    home.put("nas", "StocksSkill", "buy")
    intents.remove("nas", "StocksSkill")
    assert intents.known_lists(book) is not None
    intents.remove("pc", "LampSkill")
    assert intents.known_lists(book) is None


async def test_one_device_does_not_take_the_names_of_the_others(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_NAMED_THINGS", 60)
    monkeypatch.setattr(limits, "MAX_NAMES_OF_SOURCE", 40)
    for number in range(50):
        home.put("aaa", f"Thing{number}Skill", "turn_on", "turn_off")
    home.put("pi", "HeaterSkill", "turn_on", "turn_off")
    assert await home.called("turn on the heater") == "pi.HeaterSkill.turn_on"
