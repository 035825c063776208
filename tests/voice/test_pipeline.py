"""From the wake word to the spoken answer: sound goes into a pipe and comes out of another one."""

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import psutil
import pytest

from chat.tasks import open_tasks
from contracts.chat.messages import ConfirmationWanted, TextDelta, TurnError, TurnEvent, TurnFinal
from contracts.chat.vocabulary import SpokenSentence, SpokenSlot, Vocabulary
from contracts.errors import HubUnreachable, SpeechError
from tests.hub_registry.spokes import eventually
from tests.voice.room import SETTINGS, Notes, Room, ScriptedChat
from tests.voice.spoken import frames, spoken
from voice import speaking
from voice.engines import Transcript
from voice.engines.speech_to_text.pocketsphinx import PocketSphinx
from voice.engines.text_to_speech.espeak import Espeak
from voice.engines.wake_word.micro_wakeword import MicroWakeWords
from voice.opening import Engines
from voice.pipeline import Pipeline
from voice.settings import VoiceSettings
from voice.sound.audio import RATE, Sound, resampled
from voice.sound.files import FileLoudspeaker, FileMicrophone
from voice.speaking import Sentences, answers, error_phrase, is_yes, question, refusals, tone

HOME = Vocabulary(
    language="en",
    sentences=(
        SpokenSentence(
            text="turn (on|off) [the] {name}", slots={"name": SpokenSlot(values=("Kitchen Light",))}
        ),
        SpokenSentence(text="what time is it"),
        SpokenSentence(text="set [the] volume to {level}[%]", slots={"level": SpokenSlot(is_number=True)}),
    ),
    names=("Kitchen", "Living Room"),
)
ANSWER = (
    TextDelta(text="It is nine. "),
    TextDelta(text="Good night."),
    TurnFinal(answer="", mode="sentence"),
)
QUESTION = ConfirmationWanted(
    id="q", turn="t", device="d", device_name="Front Door", method="unlock", arguments={}, expires_s=60
)
CONFIRMED = (QUESTION, TextDelta(text="Done."), TurnFinal(answer="Done.", mode="online"))


@pytest.fixture(scope="module")
def grammar() -> PocketSphinx:
    return PocketSphinx(SETTINGS["wake_words"])


@asynccontextmanager
async def listening(
    room: Room, events: Sequence[TurnEvent], grammar: PocketSphinx, **changed: Any
) -> AsyncIterator[tuple[ScriptedChat, Notes, Pipeline]]:
    await grammar.learn(HOME)
    chat, notes = ScriptedChat(events), Notes()
    engines = Engines(
        MicroWakeWords(SETTINGS["wake_words"]),
        {"pocketsphinx": grammar} | changed.pop("more_speech_to_text", {}),
        changed.pop("text_to_speech", None) or {"espeak": Espeak()},
    )
    pipeline = Pipeline(
        microphone=FileMicrophone(room.microphone),
        loudspeaker=FileLoudspeaker(room.loudspeaker),
        engines=engines,
        chat=chat,
        settings=VoiceSettings(**SETTINGS | changed),
        language="en",
        observer=notes,
    )
    async with open_tasks() as tasks:
        tasks.create_task(pipeline.run())
        await eventually(lambda: notes.now == "listening")
        yield chat, notes, pipeline


async def test_a_sentence_after_the_wake_word_is_answered_by_voice(room, grammar):
    async with listening(room, ANSWER, grammar) as (chat, notes, _):
        await room.say("okay nabu", "set the volume to forty two")
        await eventually(lambda: notes.activities[1:] and notes.now == "listening")
        assert chat.asked == ["set the volume to 42"]
        assert notes.activities == ["listening", "hearing", "thinking", "talking", "listening"]
        await eventually(lambda: len(room.heard) > 32_000)


async def test_a_sentence_in_one_breath_with_the_wake_word_is_understood(room, grammar):
    async with listening(room, ANSWER, grammar) as (chat, _notes, _):
        await room.say("okay nabu turn on the kitchen light")
        await eventually(lambda: chat.asked)
        assert chat.asked == ["turn on the kitchen light"]


async def test_without_the_wake_word_nothing_is_understood(room, grammar):
    async with listening(room, ANSWER, grammar) as (chat, _notes, _):
        await room.say("turn on the kitchen light")
        await room.say("okay nabu", "what time is it")
        await eventually(lambda: chat.asked)
        assert chat.asked == ["what time is it"]


async def test_the_wake_word_cuts_an_answer_short(room, grammar):
    async with listening(room, ANSWER, grammar) as (chat, notes, _):
        room.block()
        chat.go.clear()
        await room.say("okay nabu", "what time is it")
        await eventually(lambda: notes.now == "talking")
        await room.say("okay nabu", "turn on the kitchen light")
        await eventually(lambda: len(chat.asked) == 2)
        assert chat.cancelled == 1
        chat.go.set()
        room.unblock()
        await eventually(lambda: notes.now == "listening")
        assert chat.asked == ["what time is it", "turn on the kitchen light"]


async def test_speech_cuts_an_answer_short_where_that_is_set(room, grammar):
    async with listening(room, ANSWER, grammar, barge_in="speech") as (chat, notes, _):
        room.block()
        chat.go.clear()
        await room.say("okay nabu", "what time is it")
        await eventually(lambda: notes.now == "talking")
        await room.say("turn on the kitchen light now please")
        await eventually(lambda: chat.cancelled)
        room.unblock()


@pytest.mark.parametrize(("answer", "approved"), [("yes do it", True), ("no", False)])
async def test_a_question_is_answered_by_voice(room, grammar, answer, approved):
    async with listening(room, CONFIRMED, grammar) as (chat, notes, _):
        await room.say("okay nabu", "turn on the kitchen light")
        await eventually(lambda: notes.activities.count("hearing") == 2)
        await room.say(answer)
        await eventually(lambda: chat.approved)
        assert chat.approved == [approved]


async def test_of_numbers_that_sound_alike_the_one_that_was_meant_is_asked(room, grammar):
    async with listening(room, ANSWER, grammar) as (chat, notes, _):
        await room.say("okay nabu", "set the volume to nineteen")
        for times, answer in ((2, "no"), (3, "yes do it")):
            await eventually(lambda times=times: notes.activities.count("hearing") == times)
            assert chat.asked == []
            await room.say(answer)
        await eventually(lambda: chat.asked)
        [heard, *_] = notes.transcripts
        assert {heard.text, *chat.asked} == {"set the volume to 19", "set the volume to 90"}


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en-gb", "yes"),
        ("en-gb", "guess who did it"),
        ("en-gb", "yes but wait"),
        ("en-gb", "yes, do it not"),
        ("de", "jawohl"),
        ("de", "ja bitte nicht"),
        ("de", "ja gern"),
        ("de", "na bitte"),
        ("de", "ja mach das"),
    ],
)
async def test_what_sounds_like_a_yes_is_none(grammar, language, said):
    sound = spoken(said, voice=f"espeak:{language}")
    heard = await grammar.of(answers(language)).transcribe(frames(sound), language=language)
    assert not (heard.certain and is_yes(heard.text, language))


@pytest.mark.parametrize(
    ("said", "meaning"),
    [("nein", False), ("nein danke", False), ("abbrechen", False), ("ja, bitte mach das", True)],
)
async def test_a_german_answer_is_understood(grammar, said, meaning):
    answered = grammar.of(answers("de"), safe=refusals("de"))
    heard = await answered.transcribe(frames(spoken(said, voice="espeak:de")), language="de-DE")
    assert (is_yes(heard.text, "de"), heard.certain) == (meaning, True)


async def test_no_answer_to_a_question_is_a_no(room, grammar):
    async with listening(room, CONFIRMED, grammar) as (chat, notes, _):
        await room.say("okay nabu", "turn on the kitchen light")
        for times in (2, 3):
            await eventually(lambda times=times: notes.activities.count("hearing") == times)
            await room.silence(6)
        await eventually(lambda: chat.approved)
        assert chat.approved == [False]


class _Understands:
    def __init__(self, text: str = "", error: SpeechError | None = None) -> None:
        self._text, self._error = text, error
        self.heard = 0

    async def transcribe(self, frames: AsyncIterator[bytes], *, language: str) -> Transcript:
        async for frame in frames:
            self.heard += len(frame)
        if self._error is not None:
            raise self._error
        return Transcript(self._text, certain=True)


async def test_what_the_grammar_rejects_goes_to_the_next_engine(room, grammar):
    other = _Understands("tell me a story about dragons")
    async with listening(room, ANSWER, grammar, more_speech_to_text={"wyoming": other}) as (chat, _notes, _):
        await room.say("okay nabu", "tell me a story about dragons")
        await eventually(lambda: chat.asked)
        assert chat.asked == ["tell me a story about dragons"]
        await room.say("okay nabu", "what time is it")
        before = other.heard
        await eventually(lambda: len(chat.asked) == 2)
        assert other.heard == before


async def test_a_server_that_is_found_in_the_network_answers_no_question(room, grammar):
    other = _Understands("yes")
    async with listening(room, CONFIRMED, grammar, more_speech_to_text={"wyoming": other}) as (
        chat,
        notes,
        _,
    ):
        await room.say("okay nabu", "turn on the kitchen light")
        for times in (2, 3):
            await eventually(lambda times=times: notes.activities.count("hearing") == times)
            await room.say("tell me a story about dragons")
        await eventually(lambda: chat.approved)
        assert (chat.approved, other.heard) == ([False], 0)


async def test_answers_that_end_with_a_question_are_listened_to_three_times(room, grammar):
    asks = (TurnFinal(answer="What else?", mode="sentence"),)
    async with listening(room, asks, grammar) as (chat, notes, _):
        await room.say("okay nabu", "what time is it")
        for times in (2, 3, 4):
            await eventually(lambda times=times: notes.activities.count("hearing") == times)
            await room.say("what time is it")
        await eventually(lambda: notes.activities.count("listening") == 2)
        assert len(chat.asked) == 4


class _Endless:
    def __init__(self) -> None:
        self.closed_by: list[str] = []

    async def say(self, text: str, *, language: str) -> AsyncIterator[Sound]:
        try:
            while True:
                yield Sound(bytes(4_410), 22_050)
        finally:
            task = asyncio.current_task()
            self.closed_by.append(task.get_name() if task is not None else "")


async def test_an_engine_that_is_cut_short_is_closed_by_who_played_it(room, grammar):
    endless = _Endless()
    voices = {"endless": endless}
    async with listening(room, ANSWER, grammar, text_to_speech=voices) as (_chat, notes, pipeline):
        room.block()
        await room.say("okay nabu", "what time is it")
        await eventually(lambda: notes.now == "talking")
        pipeline.listen()
        await eventually(lambda: notes.now == "hearing")
        assert endless.closed_by == ["voice speaks"]


class _Searching:
    """Looks for a server, and takes a moment to stop after its time is over."""

    def __init__(self) -> None:
        self.stops, self.may_stop = asyncio.Event(), asyncio.Event()

    async def say(self, text: str, *, language: str) -> AsyncIterator[Sound]:
        try:
            async with asyncio.timeout(0):
                try:
                    await asyncio.Event().wait()
                finally:
                    self.stops.set()
                    await self.may_stop.wait()
        except TimeoutError:
            raise SpeechError("nothing was found") from None
        yield


async def test_it_goes_on_where_it_is_interrupted_while_an_engine_gives_up(room, grammar):
    searching = _Searching()
    voices = {"wyoming": searching}
    async with listening(room, ANSWER, grammar, text_to_speech=voices) as (chat, notes, pipeline):
        chat.go.clear()
        await room.say("okay nabu", "what time is it")
        await asyncio.wait_for(searching.stops.wait(), 60)
        pipeline.listen()
        await eventually(lambda: chat.cancelled)
        searching.may_stop.set()
        await eventually(lambda: notes.now == "hearing")


@pytest.mark.parametrize("is_heard", [True, False])
async def test_espeak_is_ended_however_often_who_speaks_is_cancelled(is_heard):
    begun = asyncio.Event()

    async def speak() -> None:
        async with aclosing(Espeak().say("one two three. " * 1_000, language="en")) as sounds:
            async for _ in sounds:
                begun.set()
                await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        speaking = tasks.create_task(speak())
        # Else it is cancelled while the process starts.
        await (begun.wait() if is_heard else asyncio.sleep(0))
        for _ in range(3):
            speaking.cancel()
            await asyncio.sleep(0)
            assert not speaking.done()
    assert "espeak-ng" not in [each.name() for each in psutil.Process().children()]


async def test_who_speaks_can_be_cancelled_at_the_end_of_a_sentence(monkeypatch):
    wait = Process.wait

    async def wait_then_cancel(process: Process) -> int:
        code = await wait(process)
        asyncio.get_running_loop().call_soon(task.cancel)
        return code

    async def speak() -> None:
        async with aclosing(Espeak().say("one", language="en")) as sounds:
            async for _ in sounds:
                pass
        await asyncio.sleep(0)

    monkeypatch.setattr(Process, "wait", wait_then_cancel)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(speak())
    assert task.cancelled()


class _Mute:
    async def say(self, text: str, *, language: str) -> AsyncIterator[Sound]:
        raise SpeechError("no voice")
        yield


class _Hanging:
    async def say(self, text: str, *, language: str) -> AsyncIterator[Sound]:
        await asyncio.Event().wait()
        yield


@pytest.mark.parametrize(
    ("failing", "problem"), [(_Mute(), "no voice"), (_Hanging(), "the engine does not answer")]
)
async def test_another_voice_speaks_where_one_cannot(room, grammar, monkeypatch, failing, problem):
    monkeypatch.setattr("voice.limits.ENGINE_S", 0.1)
    voices = {"wyoming": failing, "endless": _Endless()}
    async with listening(room, ANSWER, grammar, text_to_speech=voices) as (_chat, notes, _):
        await room.say("okay nabu", "what time is it")
        await eventually(lambda: notes.now == "talking")
        assert notes.problems["wyoming"] == problem


class _Notebook(Espeak):
    """Speaks, and keeps the texts."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def say(self, text: str, *, language: str) -> AsyncGenerator[Sound, None]:
        self.texts.append(text)
        return super().say(text, language=language)


async def test_tones_say_that_it_listens_and_one_sentence_what_failed(room, grammar):
    failed = (TurnError(code="model_failed", message="the model is tired. Its log says more."),)
    voice = _Notebook()
    voices = {"espeak": voice}
    async with listening(room, failed, grammar, text_to_speech=voices, tones=True) as (_chat, notes, _):
        await room.say("okay nabu", "what time is it")
        await eventually(lambda: notes.activities[1:] and notes.now == "listening")
    assert voice.texts == ["Sorry, that did not work: the model is tired."]
    awake, understood = (resampled(tone(kind), RATE).samples for kind in ("awake", "understood"))
    await eventually(lambda: len(room.heard) > len(awake + understood))
    assert room.heard.startswith(awake + understood)


@pytest.mark.parametrize(
    ("error", "english", "german"),
    [
        (HubUnreachable("the hub cannot be reached"), "I cannot reach the hub", "Ich erreiche die Zentrale"),
        (SpeechError("the server is gone", hint="Start it."), "the server is gone.", "antwortet gerade"),
        (TurnError(code="limit", message="20 calls. Enough."), "did not work: 20 calls.", "zu viel."),
        (TurnError(code="internal", message="a bug"), "did not work: a bug.", "hat leider nicht geklappt."),
    ],
)
def test_an_error_is_one_sentence_in_the_language_that_is_spoken(error, english, german):
    said = {language: error_phrase(error, language) for language in ("en", "de-AT")}
    assert english in said["en"]
    assert german in said["de-AT"]
    assert all(text.count(".") == 1 for text in said.values())


def test_an_answer_of_any_length_is_divided_and_stripped_of_its_marks():
    # With a quadratic pattern, these would take hours.
    for text, said in (("[](", "[]("), ("\n", ""), ("\n \t", "")):
        assert speaking.spoken("[one](http://home)" + text * 300_000) == "one" + said * 300_000
    sentences = Sentences()
    assert [len(each) for each in sentences.add("a. " * 300_000 + "Abzw. e. ")] == [900_005]


@pytest.mark.parametrize(
    ("language", "asked"),
    [
        ("en", "With level 5, note x and more: Shall I run dim on Lamp? Say yes, do it, or no."),
        (
            "de",
            (
                "Mit level 5, note x und mehr: Soll ich dim auf Lamp ausführen? "
                "Sag ja bitte, mach das, oder nein."
            ),
        ),
    ],
)
def test_a_question_ends_with_method_and_device_whatever_the_arguments(language, asked):
    call = {"device_name": "Lamp", "method": "LampSkill.dim", "arguments": {"level": 5, "note": "x"}}
    wanted = QUESTION.model_copy(update={**call, "cut": True})
    assert question(wanted, language) == asked
    bare = question(wanted.model_copy(update={"arguments": {}, "cut": False}), language)
    assert asked.endswith(f": {bare}")
