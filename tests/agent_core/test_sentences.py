import asyncio
import tracemalloc
from dataclasses import replace

import pytest

from agent_core.search.catalogue import SkillCall, Target
from agent_core.sentences.index import SentenceCall, SentenceChoice, SentenceIndex
from agent_core.sentences.matching import OutOfSteps, Steps
from agent_core.sentences.templates import compile_template, spoken_sentence
from agent_core.skills.questions import questions_of, spoken_questions
from agent_core.tools.sentence_turn import run_sentence
from agent_core.tools.skill_calls import Consent
from contracts.chat.messages import ConfirmationWanted, TurnEvent, TurnFinal
from contracts.devices.registration import Method, MethodFlags
from contracts.errors import CallError, ErrorCode
from contracts.wire import Json
from tests.agent_core.house import House as FakeHouse


def method(
    name: str, *sentences: str, language: str = "en", flags: MethodFlags | None = None, **types: Json
) -> Method:
    return Method(
        name=name,
        signature=f"{name}({', '.join(types)})",
        parameters={
            "type": "object",
            "properties": {
                key: {"type": kind} if isinstance(kind, str) else kind for key, kind in types.items()
            },
            "required": list(types),
            "additionalProperties": False,
        },
        flags=flags or MethodFlags(),
        sentences={language: list(sentences)},
    )


def on(device: str, of: Method, *, skill: str = "MediaSkill", name: str = "") -> Target:
    path = f"devices.{device}.{skill}.{of.name}"
    return Target(path, device, name or device.replace("_", " ").title(), skill, of)


VOLUME = method("set_volume", "(set|turn) [the] volume to {level} [percent]", level="integer")


def index(*targets: Target) -> SentenceIndex:
    made = SentenceIndex()
    made.put(targets)
    return made


def matched(
    made: SentenceIndex, text: str, *, current: str | None = None, language: str = "en"
) -> dict[str, Json] | None:
    found = made.match(text, language=language, current=current)
    return found.arguments if isinstance(found, SentenceCall) else None


@pytest.mark.parametrize(
    "text",
    [
        "set volume to 30",
        "Set the volume to 30 percent.",
        "turn the  VOLUME to 30%!",
        "Turn volume to +30 percent",
    ],
)
def test_an_utterance_becomes_a_call_with_numbers_as_numbers(text: str) -> None:
    assert matched(index(on("pc", VOLUME)), text) == {"level": 30}


@pytest.mark.parametrize(
    "text",
    ["set volume", "set volume to loud", "please set volume to 30", "volume to 30", "set volume to 30.5", ""],
)
def test_what_no_sentence_says_matches_nothing(text: str) -> None:
    assert index(on("pc", VOLUME)).match(text, language="en", current="pc") is None


def test_slots_are_typed_by_the_schema() -> None:
    made = index(
        on("pc", method("heat", "heat the room to {degrees} degrees", degrees="number")),
        on("pc", method("play", "play the song {title}", title="string")),
        on("pc", method("mode", "switch to {mode} mode", mode={"enum": ["Party", "night"]})),
    )
    assert matched(made, "heat the room to 21,5 degrees") == {"degrees": 21.5}
    assert matched(made, "play the song 99 Luftballons") == {"title": "99 Luftballons"}
    assert matched(made, "switch to party mode") == {"mode": "Party"}
    assert matched(made, "switch to dull mode") is None


def test_enums_behind_a_reference_mind_no_case_and_durations_are_spoken() -> None:
    mood = {"anyOf": [{"enum": ["WARM", "Cold"]}, {"type": "null"}]}
    lamp = method(
        "glow", "glow {mood} now for {time}", mood=mood, time={"type": "string", "format": "duration"}
    )
    for said, time in (("5 minutes", "PT5M"), ("1 hour and 30 min", "PT1H30M"), ("2,5 Stunden", "PT2.5H")):
        assert matched(index(on("pc", lamp)), f"glow warm now for {said}") == {"mood": "WARM", "time": time}


def test_the_sentence_that_leaves_less_open_wins() -> None:
    made = index(
        on("pc", method("play", "play the {title}", title="string")),
        on("pc", method("news", "play the news")),
    )
    found = made.match("play the news", language="en", current=None)
    assert isinstance(found, SentenceCall)
    assert found.target.method.name == "news"


def test_a_sentence_belongs_to_its_language() -> None:
    made = index(on("pc", method("time", "wie spät [ist es]", language="de-AT")))
    assert matched(made, "Wie spät ist es?", language="de") == {}
    assert matched(made, "Wie spät ist es?", language="en") is None


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("stop", "at least 2 words"),
        ("play {title}", "no parameter"),
        ("[please] stop [it now]", "at least 2 words"),
        ("(stop|end all) [it]", "at least 2 words"),
        ("stop the [music", "has a '[' that is not closed"),
        ("stop <the> music now", "not known here"),
        ("stop it now " + "x" * 600, "longer than"),
        ("stop it now [ |  |]", "more than one empty alternative"),
        ("stop it now " + "[a|b|c] " * 6, "more than 1,000 ways"),
        ("stop it now (a;b;c;d;e;f;g)", "more than 1,000 ways"),
        ("(" * 9 + "stop it now" + ")" * 9, "more than 8 brackets"),
        ("stop it now " + "{x}" * 11, "11 slots"),
    ],
)
def test_a_template_that_cannot_be_used_is_left_out_and_said(template: str, says: str) -> None:
    made = index(on("pc", method("stop", template, "stop the music")))
    assert matched(made, "stop the music") == {}
    (problem,) = made.problems["pc", "MediaSkill"]
    assert problem.startswith("MediaSkill.stop: ")
    assert says in problem


def test_a_template_without_a_needed_slot_is_left_out() -> None:
    made = index(on("pc", method("set_volume", "make it loud now", level="integer")))
    assert "needs level" in made.problems["pc", "MediaSkill"][0]


def test_a_tie_goes_to_the_current_device_and_otherwise_the_user_is_asked() -> None:
    made = index(on("living_room_pc", VOLUME), on("tv", VOLUME, name="TV"))
    here = made.match("set volume to 5", language="en", current="tv")
    assert isinstance(here, SentenceCall)
    assert here.target.device == "tv"
    asked = made.match("set volume to 5", language="en", current="phone")
    assert isinstance(asked, SentenceChoice)
    assert {call.target.device for call in asked.calls} == {"living_room_pc", "tv"}
    assert "Living Room Pc or TV" in asked.question


@pytest.mark.parametrize(
    "text", ["set volume to 5 on the living room pc", "Set volume to 5 in living room PC."]
)
def test_a_device_can_be_named_at_the_end(text: str) -> None:
    made = index(on("living_room_pc", VOLUME), on("tv", VOLUME))
    found = made.match(text, language="en", current="tv")
    assert isinstance(found, SentenceCall)
    assert (found.target.device, found.arguments) == ("living_room_pc", {"level": 5})


def test_a_skill_that_is_put_again_or_removed_is_forgotten() -> None:
    made = index(on("pc", VOLUME), on("tv", VOLUME))
    made.put([on("pc", method("stop", "stop the music"))])
    assert matched(made, "set volume to 5", current="pc") == {"level": 5}
    assert matched(made, "stop the music", current="pc") == {}
    made.remove("pc", "MediaSkill")
    made.remove("pc", "NeverThere")
    assert matched(made, "stop the music", current="pc") is None


async def test_the_digest_changes_with_what_can_be_said() -> None:
    made = index(on("pc", VOLUME))
    before = await made.digest()
    made.put([on("tv", VOLUME)])
    assert await made.digest() == before
    made.put([on("tv", method("stop", "stop the music"))])
    assert await made.digest() != before
    made.remove("tv", "MediaSkill")
    assert await made.digest() == before


def test_an_old_name_of_a_device_is_forgotten() -> None:
    made = index(on("pc", VOLUME, name="Old"), on("tv", VOLUME))
    made.put([on("pc", VOLUME, name="New")])
    assert matched(made, "set volume to 5 on New", current="tv") == {"level": 5}
    assert matched(made, "set volume to 5 on Old", current="tv") is None


LETTERS: dict[str, Json] = dict.fromkeys("abcdefghij", "string")
HOSTILE = method("block", "turn {a}{b}{c}{d}{e}{f}{g}{h}{i}{j} the lamp", flags=None, **LETTERS)
"""It can be read in some 10**18 ways."""


def test_a_template_that_takes_too_long_is_given_up_and_others_still_match() -> None:
    lamp = method("on", "turn on the lamp [please] {times} times", times="integer")
    made = index(on("evil", HOSTILE), on("pc", lamp))
    assert matched(made, f"turn on the lamp {'on ' * 80}times") is None
    assert matched(made, "turn on the lamp please 3 times") == {"times": 3}
    steps = Steps(10_000)
    with pytest.raises(OutOfSteps):
        compile_template(HOSTILE.sentences["en"][0], HOSTILE).arguments(
            f"turn the lamp {'on ' * 80}", HOSTILE, steps
        )


def test_many_devices_share_what_one_match_may_take_and_others_still_match() -> None:
    slots = "".join(f"{{{name}}}" for name in LETTERS)
    evil = [
        on(f"evil{n}", method(f"block{n}", f"turn {slots} the [x{n}] lamp", flags=None, **LETTERS))
        for n in range(50)
    ]
    lamp = on("pc", method("on", "turn on the lamp [please] {times} times", times="integer"))

    def problems(made: SentenceIndex) -> set[str]:
        found: dict[str, str] = {}
        call = made.match(
            "turn on the lamp please 3 times", language="en", current=None, on_problem=found.__setitem__
        )
        assert isinstance(call, SentenceCall)
        assert call.arguments == {"times": 3}
        return set(found)

    assert problems(index(evil[0], lamp)) == set()
    assert problems(index(*evil, lamp)) == {each.device for each in evil}


def lamps(device: str, *, tag: str = "") -> Target:
    """Return a method with 20 sentences; the last may fit, the others take some 100 steps each."""
    slow = [f"please set {{what}} [up|down|on|off] [{tag}{n}|b|c] to now percent" for n in range(19)]
    return on(device, method("set_lamp", *slow, "please set {what} to 19 percent now", what="string"))


@pytest.mark.parametrize("alike", [0, 1, 30])
def test_what_is_said_on_or_of_a_device_is_for_it_with_many_neighbours(alike: int) -> None:
    others = [
        on(f"other{n}", method("set_hob", f"set {{what}} [o{n}] lamp now", what="string")) for n in range(30)
    ]
    made = index(*(lamps(f"d{n}") for n in range(alike + 1)), *others)
    said = "please set the big reading lamp to 19 percent now"
    for utterance, current in ((said, "d0"), (f"{said} on the D0", "other1")):
        found = made.match(utterance, language="en", current=current)
        assert isinstance(found, SentenceCall)
        assert found.target.device == "d0"


def test_only_a_device_with_a_slow_sentence_is_a_problem_and_once() -> None:
    found: list[str] = []
    made = index(on("evil", HOSTILE), *(lamps(f"d{n}", tag=f"d{n}t") for n in range(50)))
    for said in ("please set the lamp to 19 percent now", *[f"turn the lamp {'on ' * 80}"] * 2):
        made.match(said, language="en", current="d1", on_problem=lambda device, _: found.append(device))
    assert found == ["evil"]


def test_a_long_list_of_values_counts_for_each_check_so_that_a_device_cannot_hold_up_the_others() -> None:
    # A number among the words, so that no table finds the value.
    values = [1, *(f"value {number}" for number in range(7_400))]
    long = method("set", "turn on the {value}", value={"enum": values})
    lamp = method("on", "turn on the lamp", "switch on the lamp")
    template = compile_template("turn on the {value}", long)
    with pytest.raises(OutOfSteps):
        # What one check may take; each device has so many for some thirty of them.
        template.arguments("turn on the radio", long, Steps(300))
    assert template.arguments("turn on the value 7", long, Steps(1_000)) == {"value": "value 7"}
    assert matched(index(on("evil", long), on("pc", lamp)), "turn on the lamp") == {}


def test_alternatives_that_mean_the_same_take_a_few_steps_instead_of_multiplying() -> None:
    # 512 ways to read it, and none of them ends with the text.
    same = method("same", "turn on the lamp " + "[a ]" * 9)
    template = compile_template(same.sentences["en"][0], same)
    assert template.arguments("turn on the lamp a a a a a a a a a b", same, Steps(300)) is None


def test_what_may_come_in_any_order_takes_a_few_steps_instead_of_multiplying() -> None:
    # 720 ways to read it, which make 64 sets of what is still to come.
    same = method("same", "turn on the lamp (a;a;a;a;a;a)")
    template = compile_template(same.sentences["en"][0], same)
    assert template.arguments("turn on the lamp a a a a a a b", same, Steps(1_000)) is None


def test_sentences_with_the_same_listed_values_share_them() -> None:
    listed = method("play", station={"enum": [f"station {number}" for number in range(1_000)]})
    tracemalloc.start()
    templates = [compile_template(f"play {{station}} at {number}", listed) for number in range(50)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert templates[-1].arguments("play station 7 at 49", listed, Steps(100)) == {"station": "station 7"}
    assert size < 1_000_000


def test_a_device_has_a_limited_number_of_sentences_and_keeps_its_methods() -> None:
    made = SentenceIndex()
    for number in range(1_000):
        made.put([on("pc", method(f"m{number}", f"turn on the lamp {number}"))])
    assert matched(made, "turn on the lamp 17") == {}
    assert matched(made, "turn on the lamp 717") is None
    assert "more than 500 sentences" in made.problems["pc", "MediaSkill"][0]
    assert made.match("turn on the lamp " * 6_000, language="en", current=None) is None
    made.remove("pc", "MediaSkill")
    made.put([on("pc", VOLUME)])
    assert matched(made, "set volume to 5") == {"level": 5}


@pytest.mark.parametrize(
    ("template", "utterance", "arguments"),
    [
        ("switch on the living-room light[s]", "Switch on the living room lights, please?", None),
        ("switch on the living-room light[s]", "switch on the living room lights", {}),
        ("switch on the living room light[s]", "Switch ON the living-room light!", {}),
        (
            "say {a} and then {b} aloud",
            "say yes and then no and then yes aloud",
            {"a": "yes", "b": "no and then yes"},
        ),
        ("warm to {a}%[ at most]", "warm to 20% at most", {"a": "20"}),
        ("warm it to {a} degrees", "warm it to -5 degrees", {"a": "-5"}),
        ("put (on;the lamp) now", "put the lamp on now", {}),
        ("put (on;the lamp;dimmed {a}) now", "put dimmed two the lamp on now", {"a": "two"}),
        ("rate this {1..5:n}", "rate this 5", {"n": 5}),
        ("rate this {1..5:n}", "rate this 6", None),
        ("öffne die straße", "Öffne die Straße", {}),
    ],
)
def test_words_may_be_written_in_several_ways(template: str, utterance: str, arguments: Json) -> None:
    made = index(on("pc", method("m", template).model_copy(update={"parameters": OPEN})))
    assert matched(made, utterance) == arguments


OPEN: dict[str, Json] = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "string"}, "n": {"type": "integer"}},
}


def test_speech_to_text_gets_the_words_of_a_definition_and_of_an_optional_value() -> None:
    said = method("tidy", "tidy the {room} {how}", room={"$ref": "#/$defs/Room"}, how={"anyOf": []})
    words: Json = {"enum": ["kitchen", "hall"], "type": "string"}
    said.parameters["$defs"] = {"Room": words}
    said.parameters["properties"]["how"]["anyOf"] = [words, {"type": "null"}]
    sentence = spoken_sentence("tidy the {room} {how}", said)
    assert [each.values for each in sentence.slots.values()] == [("kitchen", "hall")] * 2


@pytest.mark.parametrize(
    ("template", "arguments", "question"),
    [
        (
            "unlock [the] {door} door for {n} minute[s]",
            {"door": "front", "n": 5},
            "Unlock the front door for 5 minutes?",
        ),
        ("(open|unlock) {door} [for {n} minutes]", {"door": "it", "n": 2.5}, "Open it for 2.5 minutes?"),
        ("unlock {door} now", {"door": "front", "n": 5}, None),
        ("unlock {door} for {n}", {"door": "x" * 200, "n": 5}, None),
        ("unlock {door} for {n}", {"door": "a\nb", "n": 5}, None),
        ("unlock {door} for {n}", {"door": ["a"], "n": 5}, None),
    ],
)
def test_a_call_is_asked_about_in_the_words_that_say_all_of_it(
    template: str, arguments: dict[str, Json], question: str | None
) -> None:
    assert spoken_questions(method("unlock", template), arguments).get("en") == question


@pytest.mark.parametrize(
    ("given", "question"),
    [
        ({"degrees": 30, "room": "Bad"}, "Vorlauf einstellen (Heizung): Grad 30, Raum Bad?"),
        (
            {"degrees": 30, "rooms": ["Bad", "Flur"]},
            "Vorlauf einstellen (Heizung): Grad 30, Räume Bad, Flur?",
        ),
        ({"boost": True}, "Vorlauf einstellen (Heizung): Schub An?"),
        ({"room": {"a": 1}}, None),
        ({"room": "x" * 101}, None),
    ],
)
def test_a_call_without_a_sentence_is_asked_about_by_its_german_labels(
    given: dict[str, Json], question: str | None
) -> None:
    labels = {"de": {"flow": "Vorlauf", "room": "Raum", "rooms": "Räume", "boost": "Schub"}}
    target = replace(on("pc", method("set_flow"), skill="HeatingSkill"), labels=labels)
    assert questions_of(target, given).get("de") == question
    assert "en" not in questions_of(target, given)


def test_examples_can_be_said() -> None:
    made = index(on("pc", VOLUME), on("pc", method("stop", "stop [all] the (music|noise)"), skill="B"))
    assert made.examples("en") == ["stop the music", "set volume to <level>"]
    assert matched(made, "stop the music") == {}
    assert made.examples("fr") == []


def test_many_templates_stay_apart() -> None:
    made = index(
        *(
            on(f"d{n}", method(f"m{n}", f"start the number {n} machine {{x}}", x="integer"), skill=f"S{n}")
            for n in range(300)
        )
    )
    found = made.match("start the number 217 machine 4", language="en", current=None)
    assert isinstance(found, SentenceCall)
    assert found.target.method.name == "m217"


class House(FakeHouse):
    """The caller and the person of a sentence turn."""

    fails: CallError | None = None
    hangs = False
    left = False

    async def call(self, call: SkillCall) -> Json:
        self.called.append((call.target.path, dict(call.arguments), call.confirmed))
        if self.hangs:
            try:
                await asyncio.Event().wait()
            finally:
                self.left = True
        if self.fails:
            raise self.fails
        return {"volume": call.arguments["level"]}


async def run(
    made: SentenceIndex, house: House, *, said: str = "set volume to 5", language: str = "en"
) -> list[TurnEvent]:
    found = made.match(said, language=language, current=None)
    assert found is not None
    events: list[TurnEvent] = []
    consent = Consent(house)
    await run_sentence(
        found, turn="t", catalogue=house, caller=house, consent=consent, emit=events.append, device="pc"
    )
    return events


async def test_a_sentence_makes_its_call_and_says_the_result() -> None:
    house = House()
    events = await run(index(on("pc", VOLUME)), house)
    assert house.called == [("devices.pc.MediaSkill.set_volume", {"level": 5}, False)]
    assert [event.kind for event in events] == ["skill", "skill", "text", "final"]
    assert events[-1] == TurnFinal(answer="volume: 5", mode="sentence", device="pc")


async def test_a_sentence_of_a_confirm_method_asks_first() -> None:
    careful = VOLUME.model_copy(update={"flags": MethodFlags(confirm=True)})
    house = House()
    events = await run(index(on("pc", careful)), house)
    assert [event.arguments for event in events if isinstance(event, ConfirmationWanted)] == [{"level": 5}]
    assert house.called[0][2] is True
    refused = House(yes=False)
    events = await run(index(on("pc", careful)), refused)
    assert refused.called == []
    assert isinstance(events[-1], TurnFinal)
    assert events[-1].failed
    assert "did not confirm" in events[-1].answer


async def test_a_sentence_whose_call_fails_says_so() -> None:
    house = House()
    house.fails = CallError(ErrorCode.OFFLINE, "PC is offline", hint="Switch it on")
    events = await run(index(on("pc", VOLUME)), house)
    answer = "PC is offline. Switch it on."
    assert events[-1] == TurnFinal(answer=answer, mode="sentence", device="pc", failed=True)


async def test_a_failed_call_is_told_in_the_language_of_the_sentence() -> None:
    made = index(on("pc", VOLUME.model_copy(update={"sentences": {"de": ("stelle laut auf {level}",)}})))
    for code in ErrorCode:
        house = House()
        house.fails = CallError(code, "PC failed", hint="Look there")
        events = await run(made, house, said="stelle laut auf 5", language="de-AT")
        assert isinstance(events[-1], TurnFinal)
        assert ("PC failed" in events[-1].answer) == (code is ErrorCode.SKILL_ERROR)
        assert events[-1].answer.startswith(("Das ", "Mit ", "Ob ", "Dafür "))


@pytest.mark.parametrize(
    ("language", "question"), [("en", "On which device: Pc or Tv?"), ("de", "Auf welchem Gerät: Pc oder Tv?")]
)
async def test_an_ambiguous_sentence_calls_nothing_and_asks(language: str, question: str) -> None:
    house = House()
    method = VOLUME.model_copy(update={"sentences": {language: ("set volume to {level}",)}})
    events = await run(index(on("pc", method), on("tv", method)), house, language=language)
    assert house.called == []
    assert isinstance(events[-1], TurnFinal)
    assert question.lower() in events[-1].answer.lower()


async def test_cancelling_a_sentence_turn_ends_its_call() -> None:
    house = House()
    house.hangs = True
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run(index(on("pc", VOLUME)), house))
        while not house.called:  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0)
        running.cancel()
    assert running.cancelled()
    assert house.left
