"""A Wyoming server of its own process: pocketsphinx with a small grammar hears, espeak-ng speaks."""

import asyncio
import io
import subprocess
import sys
import threading
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TextIO, cast

from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.event import Event
from wyoming.info import AsrModel, AsrProgram, Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.server import AsyncEventHandler, AsyncTcpServer
from wyoming.tts import Synthesize

GRAMMAR = """#JSGF V1.0;
grammar home;
public <said> = turn the volume to (ten | twenty | fifty) percent | stop the music | play some jazz |
 turn on the kitchen light;
"""
_ABOUT: Any = {
    "attribution": Attribution("tests", ""),
    "installed": True,
    "description": None,
    "version": None,
}
INFO = Info(
    asr=[AsrProgram("sphinx", models=[AsrModel("grammar", languages=["en"], **_ABOUT)], **_ABOUT)],
    tts=[TtsProgram("espeak", voices=[TtsVoice("en", languages=["en"], **_ABOUT)], **_ABOUT)],
)


class Handler(AsyncEventHandler):
    sound = b""

    async def handle_event(self, event: Event) -> bool:
        if Describe.is_type(event.type):
            await self.write_event(INFO.event())
        elif Transcribe.is_type(event.type):
            self.sound = b""
        elif AudioChunk.is_type(event.type):
            self.sound += AudioChunk.from_event(event).audio
        elif AudioStop.is_type(event.type):
            text = await asyncio.to_thread(hear, self.sound)
            await self.write_event(Transcript(text).event())
        elif Synthesize.is_type(event.type):
            asked = Synthesize.from_event(event)
            await self.say(asked)
            sys.stdout.write(f"{asked.text}\n")
            sys.stdout.flush()
        return True

    async def say(self, asked: Synthesize) -> None:
        command = ["espeak-ng", "--stdout", "-v", "en", asked.text]
        made = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
        with wave.open(io.BytesIO(made.stdout)) as sound:
            form = {"rate": sound.getframerate(), "width": 2, "channels": 1}
            await self.write_event(AudioStart(**form).event())
            while piece := sound.readframes(4096):
                await self.write_event(AudioChunk(audio=piece, **form).event())
        await self.write_event(AudioStop().event())


def hear(sound: bytes) -> str:
    decoder = import_module("pocketsphinx").Decoder(lm=None, samprate=16_000, loglevel="FATAL")
    decoder.add_jsgf_string("home", GRAMMAR)
    decoder.activate_search("home")
    decoder.start_utt()
    decoder.process_raw(sound, full_utt=True)
    decoder.end_utt()
    found = decoder.hyp()
    return found.hypstr if found else ""


@contextmanager
def wyoming_server(port: int = 0) -> Iterator["ServerProcess"]:
    """Run the server until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.voice.wyoming_server", str(port)], stdout=subprocess.PIPE, text=True
    ) as process:
        server = ServerProcess(process)
        try:
            yield server
        finally:
            server.kill()


class ServerProcess:
    """The process of a server.

    Attributes:
        spoken: The texts that it was asked to say.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self.process = process
        self.port = int(process.stdout.readline())
        self.spoken: list[str] = []
        self._reading = threading.Thread(target=self._read, args=(process.stdout,))
        self._reading.start()

    def _read(self, said: TextIO) -> None:
        for line in said:
            self.spoken.append(line)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()


async def main(port: int) -> None:
    server = AsyncTcpServer("127.0.0.1", port)
    await server.start(Handler)
    listening = cast(asyncio.Server, server._server)
    sys.stdout.write(f"{listening.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
