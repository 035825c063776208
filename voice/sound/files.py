"""Sound from files and pipes, and into them: for tests, and where another program has the sound card.

A microphone is a WAV file, or a named pipe of raw samples as `voice.sound.audio` describes them; so is
a loudspeaker.
"""

import asyncio
import contextlib
import os
import stat
import wave
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Self

from contracts.errors import SoundError
from voice import limits
from voice.sound.audio import FRAME_BYTES, RATE, Sound, resampled


class FileMicrophone:
    """Hears a file, and a pipe for as long as it is there; see `voice.sound.audio.Microphone`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pipe: int | None = None

    async def __aenter__(self) -> Self:
        try:
            if stat.S_ISFIFO(self._path.stat().st_mode):
                # Also for writing, so that it stays open when a program that writes to it ends.
                self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        except OSError as error:
            raise _missing("microphone", self._path, error) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        if self._pipe is not None:
            async for frame in self._piped(self._pipe):
                yield frame
            return
        samples = read_wav(self._path).samples + bytes(int(limits.FILE_SILENCE_S * RATE) * 2)
        for at in range(0, len(samples) - FRAME_BYTES + 1, FRAME_BYTES):
            yield samples[at : at + FRAME_BYTES]
            # A file has no pace of its own.
            await asyncio.sleep(0)

    async def _piped(self, pipe: int) -> AsyncGenerator[bytes, None]:
        waiting = bytearray()
        while True:
            with contextlib.suppress(BlockingIOError):
                waiting += os.read(pipe, FRAME_BYTES)
            if len(waiting) >= FRAME_BYTES:
                yield bytes(waiting[:FRAME_BYTES])
                del waiting[:FRAME_BYTES]
                await asyncio.sleep(0)
            elif not self._path.exists():
                raise SoundError(
                    f"the microphone {self._path} is gone", hint="It is used again when it is back."
                )
            else:
                await asyncio.sleep(limits.FILE_LOOK_S)


class FileLoudspeaker:
    """Writes speech to a WAV file, or raw to a pipe; see `voice.sound.audio.Loudspeaker`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._close: Callable[[], None] = lambda: None
        self._pipe: int | None = None

    async def __aenter__(self) -> Self:
        try:
            if self._path.suffix.lower() == ".wav":
                self._wav = wave.open(str(self._path), "wb")  # noqa: SIM115  closed when it is left
                self._wav.setparams((1, 2, RATE, 0, "NONE", ""))
                self._close = self._wav.close
            else:
                self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
                with contextlib.suppress(ImportError, AttributeError, OSError):
                    import fcntl

                    # The smallest, an eighth of a second: what is in it is heard after a barge-in.
                    fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, 4_096)
                self._close = lambda pipe=self._pipe: os.close(pipe)  # type: ignore[misc]
        except OSError as error:
            raise _missing("loudspeaker", self._path, error) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    async def play(self, sound: AsyncIterator[Sound]) -> None:
        """See `voice.sound.audio.Loudspeaker`; a pipe that is not read holds speech up, as a card does."""
        async for piece in sound:
            samples = resampled(piece, RATE).samples
            if self._pipe is None:
                self._wav.writeframes(samples)
            while self._pipe is not None and samples:
                try:
                    samples = samples[os.write(self._pipe, samples[:4_096]) :]
                except BlockingIOError:
                    if not self._path.exists():
                        raise SoundError(f"the loudspeaker {self._path} is gone") from None
                    await asyncio.sleep(limits.FILE_LOOK_S)


def read_wav(path: Path) -> Sound:
    """Return a WAV file as sound that is heard.

    Raises:
        SoundError: If it cannot be read, or is not 16-bit.
    """
    try:
        with wave.open(str(path)) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            samples = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise SoundError(f"cannot read {path}: {error}", hint="Give a WAV file.") from None
    if width != 2:
        raise SoundError(f"{path} has {8 * width} bits a sample", hint="Convert it to 16 bits.")
    if channels > 1:
        samples = b"".join(samples[at : at + 2] for at in range(0, len(samples), 2 * channels))
    return resampled(Sound(samples, rate), RATE)


def _missing(what: str, path: Path, error: OSError) -> SoundError:
    return SoundError(
        f"the {what} {path} cannot be opened: {error.strerror}", hint=f"Set {what} in [voice], or create it."
    )
