"""What people say to the samples, without a model."""

import re

import pytest

from agent_core.search.catalogue import Target
from agent_core.sentences.index import SentenceCall, SentenceIndex
from agent_core.sentences.responses import response_text


@pytest.fixture
def sentences(runner):
    index = SentenceIndex()
    index.put(
        Target(f"devices.pc.{skill.name}.{method.name}", "pc", "PC", skill.name, method)
        for skill in runner.skills.values()
        for method in skill.registration.methods
    )
    return index


def test_every_template_can_be_used(sentences):
    assert sentences.problems == {}


EVERYDAY = [
    ("en", "What time is it?", "TimeSkill.time", {}),
    ("de", "Wie spät ist es?", "TimeSkill.time", {}),
    ("en", "what is the date", "TimeSkill.date", {}),
    ("de", "welches Datum ist heute", "TimeSkill.date", {}),
    ("en", "turn on the lamp", "LampSkill.turn_on", {}),
    ("en", "Switch the lamp off.", "LampSkill.turn_off", {}),
    ("de", "Schalte die Lampe ein", "LampSkill.turn_on", {}),
    ("de", "mach die Lampe aus", "LampSkill.turn_off", {}),
    ("en", "dim the lamp to 30 percent", "LampSkill.set_brightness", {"percent": 30}),
    ("de", "dimme die Lampe auf 30 Prozent", "LampSkill.set_brightness", {"percent": 30}),
    ("en", "is the lamp on", "LampSkill.status", {}),
    ("en", "pause the music", "MediaSkill.pause", {}),
    ("en", "next song", "MediaSkill.next_track", {}),
    ("de", "nächstes Lied", "MediaSkill.next_track", {}),
    ("en", "what is playing", "MediaSkill.now_playing", {}),
    ("en", "set the volume to 40", "MediaSkill.set_volume", {"percent": 40}),
    ("en", "turn up the volume", "MediaSkill.change_volume", {}),
    ("en", "turn up the volume on the PC", "MediaSkill.change_volume", {}),
    ("en", "turn up the volume by 20 percent", "MediaSkill.change_volume", {"by": 20}),
    ("en", "turn the music down", "MediaSkill.turn_down", {}),
    ("de", "mach die Musik lauter", "MediaSkill.change_volume", {}),
    ("de", "stelle die Lautstärke auf 40 Prozent", "MediaSkill.set_volume", {"percent": 40}),
    ("en", "mute the computer", "MediaSkill.mute", {}),
    ("de", "schalte den Ton wieder ein", "MediaSkill.unmute", {}),
    ("en", "how much memory is free", "SystemSkill.memory", {}),
    ("de", "wie lange läuft der Computer schon", "SystemSkill.uptime", {}),
    ("en", "list my notes", "NotesSkill.list_notes", {}),
    ("de", "zeige mir meine Notizen", "NotesSkill.list_notes", {}),
]


def test_an_everyday_sentence_means_one_call(sentences):
    for language, text, path, arguments in EVERYDAY:
        call = sentences.match(text, language=language, current="pc")
        assert isinstance(call, SentenceCall), text
        assert call.target.path == f"devices.pc.{path}", text
        assert call.arguments == arguments, text


NO_SENTENCE = ["lamp", "turn on the", "the music", "what is", "set the volume to 400"]


def test_what_is_not_such_a_sentence_runs_nothing(sentences):
    for text in NO_SENTENCE:
        assert sentences.match(text, language="en", current="pc") is None, text


ANSWERS = [
    ("en", "what time is it", r"It is \d\d:\d\d\."),
    ("en", "is the lamp on", r"The lamp is off\."),
    ("en", "dim the lamp to 40 percent", r"The lamp is on, at 40 %\."),
    ("de", "dimme die Lampe auf 40 Prozent", r"Die Lampe ist an, mit 40 %\."),
    ("en", "how much memory is in use", r"[\d.]+ of [\d.]+ GB of memory are in use\."),
    ("en", "how much disk space is free", r"[\d.]+ [GT]B of [\d.]+ [GT]B are free on the disk\."),
    ("en", "how busy is this computer", r"The processor is [\d.]+ % busy\."),
    (
        "en",
        "how long has the computer been running",
        r"The computer has been running for \d+ (d|h|min|s)\b.*\.",
    ),
    ("de", "wie lange läuft der Computer", r"Der Computer läuft seit \d+ (d|h|min|s)\b.*\."),
    ("en", "list my notes", r"Nothing\."),
]


async def test_an_answer_is_a_sentence(sentences, runner):
    for language, text, answer in ANSWERS:
        call = sentences.match(text, language=language, current="pc")
        method = call.target.method
        result = await runner.run(call.target.skill, method.name, [], call.arguments)
        said = response_text(method, result, call.arguments, language=call.language)
        assert re.fullmatch(answer, said), said
