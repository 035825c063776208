"""``strawberry voice``: the voice of this machine, through its spoke, and tries of its parts without one."""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from contracts.chat.messages import ConfirmationWanted, TurnEvent, TurnFinal
from contracts.chat.vocabulary import Vocabulary
from contracts.devices.presence import VoiceSummary
from contracts.errors import ConfigError, SpeechError
from deploy import limits
from deploy.cli.client import find_spoke
from deploy.cli.terminal.output import Output
from deploy.cli.terminal.parser import Actions
from deploy.directory import Home
from deploy.logs.terminal import visible
from deploy.settings.settings import read_household, read_voice
from voice.engines import Grammar, Transcript
from voice.sound.audio import FRAME_S, Loudspeaker, Sound, level

_PATH: Final = "/api/voice"
_QUIETEST: Final = -60.0


def show(options: argparse.Namespace) -> None:
    """Show what the voice of this machine does."""
    _print(options, find_spoke(Home.find()).get(_PATH, VoiceSummary))


def mute(options: argparse.Namespace) -> None:
    """Close the microphone."""
    _switch(options, muted=True)


def unmute(options: argparse.Namespace) -> None:
    """Open the microphone again."""
    _switch(options, muted=False)


def _switch(options: argparse.Namespace, *, muted: bool) -> None:
    """Mute or unmute, and print the state once the microphone is closed or open."""
    spoke = find_spoke(Home.find())
    shown = spoke.post(f"{_PATH}/mute", {"muted": muted}, VoiceSummary)
    until = time.monotonic() + limits.MICROPHONE_SWITCHED_S
    while (shown.state == "muted") != muted and time.monotonic() < until:
        time.sleep(0.05)
        shown = spoke.get(_PATH, VoiceSummary)
    _print(options, shown)


def listen(options: argparse.Namespace) -> None:
    """Listen now, without the wake word, and wait for the answer."""
    spoke = find_spoke(Home.find())
    spoke.post(f"{_PATH}/listen", {}, VoiceSummary)
    seen: list[str] = []
    # It may take a moment until it hears.
    until = time.monotonic() + 2
    while True:
        shown = spoke.get(_PATH, VoiceSummary)
        state = shown.state
        if not seen or seen[-1] != state:
            seen.append(state)
            if not options.json:
                print(f"{state} …" if state in ("hearing", "thinking", "talking") else state, flush=True)
        if state not in ("hearing", "thinking", "talking") and (len(seen) > 1 or time.monotonic() > until):
            break
        time.sleep(limits.VOICE_LOOK_S)
    if options.json:
        Output(as_json=True).result({"states": seen, "reason": shown.reason})


def say(options: argparse.Namespace) -> None:
    """Speak a text on this machine."""
    home = Home.find()
    settings = read_voice(home)
    language = settings.language or read_household(home).language
    spoken_by = asyncio.run(_say(settings, options.text, language, options.output))
    if options.json:
        Output(as_json=True).result({"engine": spoken_by, "language": language, "output": options.output})


def devices(options: argparse.Namespace) -> None:
    """List microphones and loudspeakers."""
    from voice.sound.card import devices as found

    rows: list[dict[str, object]] = [
        {
            "name": each.name,
            "microphone": each.inputs > 0,
            "loudspeaker": each.outputs > 0,
            "default": each.is_default,
        }
        for each in found()
    ]
    empty = "There is no sound device. Is one plugged in, and may this user use it (group audio)?"
    Output(options.json).rows(rows, dict, empty=empty)


def level_meter(options: argparse.Namespace) -> None:
    """Show how loud the microphone is, and what wakes it."""
    loudest, woken = asyncio.run(_measure(options))
    text = f"\nLoudest: {loudest:.0f} dB. Wake words: {', '.join(woken) or 'none'}."
    if loudest <= _QUIETEST:
        text += "\nNothing was heard: is it the right microphone, and is it switched on?"
    Output(options.json).result({"loudest_db": round(loudest, 1), "wake_words": woken}, text=text)


def test(options: argparse.Namespace) -> None:
    """Show what is understood of a sound file.

    Shows whether the wake word is heard in a WAV file, and what is understood after it. Nothing is
    called.
    """
    notes = asyncio.run(_test(options))
    if options.json:
        Output(as_json=True).result(notes)
        return
    if not options.no_wake_word:
        print("wake word   " + ("heard" if notes.woke else "not heard"))
    for each in notes.transcripts:
        certain = "" if each.certain else "   (rejected)"
        print(visible(f"{each.engine:<11} {each.text or '(nothing)'}{certain}"))
    for engine, problem in notes.problems.items():
        print(visible(f"{engine:<11} {problem}"), file=sys.stderr)


def _print(options: argparse.Namespace, voice: VoiceSummary) -> None:
    words = f"\nwake words: {', '.join(voice.wake_words)}" if voice.wake_words else ""
    state = f"{voice.state}: {voice.reason}" if voice.reason else voice.state
    Output(options.json).result(voice, text=state + words)


async def _say(settings: Any, text: str, language: str, output: str | None) -> str:
    from voice.opening import open_engines, open_loudspeaker

    quiet = settings.model_copy(update={"wake_words": (), "speech_to_text": ()})
    engines = (await asyncio.to_thread(open_engines, quiet)).text_to_speech
    where = settings.loudspeaker if output is None else f"file:{output}"
    problem: SpeechError | None = None
    async with open_loudspeaker(where) as loudspeaker:
        for name, engine in engines.items():
            try:
                # Made before it is played, so that one engine speaks all of it.
                sounds = [sound async for sound in engine.say(text, language=language)]
            except SpeechError as error:
                problem = error
                continue
            await loudspeaker.play(_each(sounds))
            return name
    raise problem or ConfigError("no engine speaks", hint="Set text_to_speech in [voice].")


async def _each(sounds: list[Sound]) -> AsyncIterator[Sound]:
    for sound in sounds:
        yield sound


async def _measure(options: argparse.Namespace) -> tuple[float, list[str]]:
    from spoke.chat.speech import MUTED
    from voice.opening import open_engines, open_microphone

    home = Home.find()
    if (home.spoke / MUTED).exists():
        raise ConfigError("the microphone is muted", hint="'strawberry voice unmute' opens it.")
    settings = read_voice(home).model_copy(update={"speech_to_text": (), "text_to_speech": ()})
    wake = (await asyncio.to_thread(open_engines, settings)).wake
    loudest, woken, heard_s, shown = -96.0, [], 0.0, 0.0
    async with open_microphone(settings.microphone) as microphone:
        async for frame in microphone:
            now = level(frame)
            loudest, heard_s = max(loudest, now), heard_s + FRAME_S
            if wake is not None and (word := wake.heard(frame)) is not None:
                wake.reset()
                woken.append(word)
            if not options.json and heard_s - shown >= 0.1:
                shown = heard_s
                bar = "█" * round(limits.METER_COLUMNS * max(0.0, 1 - now / _QUIETEST))
                line = f"\r{now:6.1f} dB  {bar:<{limits.METER_COLUMNS}}  {woken[-1] if woken else '':<16}"
                print(line, end="", flush=True)
            if heard_s >= options.seconds:
                break
    return loudest, woken


async def _test(options: argparse.Namespace) -> "_Notes":
    from voice.opening import open_engines
    from voice.pipeline import Pipeline
    from voice.sound.files import FileMicrophone

    home = Home.find()
    settings = read_voice(home).model_copy(update={"tones": False, "text_to_speech": ()})
    language = settings.language or read_household(home).language
    engines = await asyncio.to_thread(open_engines, settings)
    for each in engines.speech_to_text.values():
        if isinstance(each, Grammar):
            await each.learn(_vocabulary(home, language))
    notes = _Notes()
    pipeline = Pipeline(
        microphone=FileMicrophone(Path(options.file)),
        loudspeaker=_Silent(),
        engines=engines,
        chat=_NoChat(),
        settings=settings,
        language=language,
        observer=notes,
    )
    if options.no_wake_word:
        pipeline.listen()
    await pipeline.run()
    return notes


def _vocabulary(home: Home, language: str) -> Vocabulary:
    """Return what the spoke of this machine got to know last."""
    from spoke.chat.speech import VOCABULARY

    try:
        return Vocabulary.model_validate_json((home.spoke / VOCABULARY).read_bytes())
    except (OSError, ValidationError):
        print("The sentences of this home are not known yet: start its spoke with a voice.", file=sys.stderr)
        return Vocabulary(language=language)


class _NoChat:
    """Answers nothing."""

    async def ask(self, message: str) -> AsyncGenerator[TurnEvent, None]:
        yield TurnFinal(answer="", mode="sentence")

    async def answer(self, wanted: ConfirmationWanted, *, approve: bool) -> None:
        pass


class _Silent(Loudspeaker):
    """Plays nothing."""

    async def play(self, sound: AsyncIterator[Sound]) -> None:
        async for _ in sound:
            pass


@dataclass(frozen=True)
class _Heard:
    engine: str
    text: str
    certain: bool


@dataclass
class _Notes:
    """Keeps what a pipeline heard."""

    woke: bool = False
    transcripts: list[_Heard] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    def activity(self, activity: str) -> None:
        self.woke |= activity == "hearing"

    def understood(self, transcript: Transcript, engine: str) -> None:
        self.transcripts.append(_Heard(engine, transcript.text, transcript.certain))

    def problem(self, engine: str, problem: str) -> None:
        if problem:
            self.problems[engine] = problem


def add_voice_actions(actions: Actions) -> None:
    """Declare 'strawberry voice'."""
    actions.add_parser("show", run=show)
    actions.add_parser("listen", run=listen)
    command = actions.add_parser("say", run=say)
    command.takes("text", "what to say")
    command.takes("--output", "write it to a file instead", metavar="FILE.wav")
    actions.add_parser("devices", run=devices)
    command = actions.add_parser("level", run=level_meter)
    command.takes("--seconds", "for how long; default 10", type=float, metavar="N", default=10)
    command = actions.add_parser("test", run=test)
    command.takes("file", "16-bit WAV", metavar="FILE.wav")
    command.add_flag("--no-wake-word", "the file begins with the command")
    actions.add_parser("mute", run=mute)
    actions.add_parser("unmute", run=unmute)
