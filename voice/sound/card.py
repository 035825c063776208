"""Microphone and loudspeaker of this machine, through PortAudio."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Self, TypeVar

from contracts.errors import SoundError
from voice import limits
from voice.installed import installed
from voice.sound.audio import FRAME_BYTES, RATE, Sound, resampled

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PLAY_RATE: Final = 22_050
"""What espeak-ng and Piper speak at."""
_LATENCY_S: Final[dict[str, str | float]] = {"input": "low", "output": 0.1}
"""Less would leave gaps in speech on a busy machine."""

_lock: Final = threading.Lock()
"""Held while devices are looked for, and while a stream is opened or closed."""
_streams: Final[set[Any]] = set()
"""Those that are open: to initialize the library again would free them under their callers."""


class Device(NamedTuple):
    """A device that PortAudio knows."""

    name: str
    inputs: int
    outputs: int
    is_default: bool


def devices() -> list[Device]:
    """Return the sound devices of this machine, looked for again where no stream is open.

    Raises:
        SpeechError: If PortAudio is not installed.
    """
    with _lock:
        library = _looked_again()
    default = [index for index in library.default.device if index >= 0]
    return [
        Device(each["name"], each["max_input_channels"], each["max_output_channels"], number in default)
        for number, each in enumerate(library.query_devices())
    ]


def _looked_again() -> Any:
    """Return the library, which knows only the devices that were there when it was initialized."""
    library = installed("sounddevice")
    if not _streams:
        library._terminate()
        library._initialize()
    return library


class CardMicrophone:
    """A microphone of this machine; see `voice.sound.audio.Microphone`.

    Args:
        name: Part of the name of a device; empty for the default one.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue(limits.MOST_FRAMES_WAITING)
        self._stream: Any = None
        self._rate = RATE

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="microphone")
        self._stream, self._rate = await _or_closed(self._thread, self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        stream, self._stream = self._stream, None
        await self._loop.run_in_executor(self._thread, _close, stream)
        self._thread.shutdown(wait=False)

    def _open(self) -> tuple[Any, int]:
        return _opened(
            "RawInputStream",
            "input",
            self._name,
            rate=RATE,
            block_s=FRAME_BYTES / 2 / RATE,
            callback=self._heard,
            finished_callback=lambda: self._put(None),
        )

    def _heard(self, frame: Any, frames: int, time: Any, status: Any) -> None:
        self._put(bytes(frame))

    def _put(self, frame: bytes | None) -> None:
        def put() -> None:
            if self._frames.full():
                self._frames.get_nowait()
            self._frames.put_nowait(frame)

        # The thread of PortAudio may outlive the loop by a moment.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(put)

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        waiting = bytearray()
        while True:
            try:
                async with asyncio.timeout(limits.MICROPHONE_SILENT_S):
                    block = await self._frames.get()
            except TimeoutError:
                block = None
            if block is None:
                raise SoundError("the microphone is gone", hint="Plug it in; it is tried again.")
            waiting += resampled(Sound(block, self._rate), RATE).samples
            while len(waiting) >= FRAME_BYTES:
                yield bytes(waiting[:FRAME_BYTES])
                del waiting[:FRAME_BYTES]


class CardLoudspeaker:
    """A loudspeaker of this machine; see `voice.sound.audio.Loudspeaker`.

    Args:
        name: Part of the name of a device; empty for the default one.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._stream: Any = None
        self._rate = _PLAY_RATE

    async def __aenter__(self) -> Self:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loudspeaker")
        self._stream, self._rate = await _or_closed(self._thread, self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._run(lambda: _close(self._stream))
        self._thread.shutdown(wait=False)

    async def play(self, sound: AsyncIterator[Sound]) -> None:
        """See `voice.sound.audio.Loudspeaker`."""
        size = int(self._rate * limits.PLAYED_AT_ONCE_S) * 2
        try:
            async for piece in sound:
                samples = resampled(piece, self._rate).samples
                for at in range(0, len(samples), size):
                    await self._run(lambda block=samples[at : at + size]: self._stream.write(block))  # type: ignore[misc]
            await self._run(self._drained)
        except asyncio.CancelledError:
            # Behind the block that is being written.
            self._thread.submit(self._cut)
            raise
        except installed("sounddevice").PortAudioError as error:
            raise SoundError(
                f"the loudspeaker is gone: {error}", hint="Plug it in; it is tried again."
            ) from None

    def _open(self) -> tuple[Any, int]:
        return _opened("RawOutputStream", "output", self._name, rate=_PLAY_RATE, block_s=0)

    def _drained(self) -> None:
        self._stream.stop()
        self._stream.start()

    def _cut(self) -> None:
        self._stream.abort()
        self._stream.start()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


async def _or_closed(thread: ThreadPoolExecutor, opening: Callable[[], tuple[Any, int]]) -> tuple[Any, int]:
    """Open a stream in a thread; where that is cancelled, the thread closes it before this is raised."""
    opened = thread.submit(opening)

    def close() -> None:
        if opened.exception() is None:
            _close(opened.result()[0])

    try:
        return await asyncio.shield(asyncio.wrap_future(opened))
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.wrap_future(thread.submit(close)))
        raise


def _opened(
    kind: str, direction: str, name: str, *, rate: int, block_s: float, **options: Any
) -> tuple[Any, int]:
    """Open and start a stream; return it with the rate that the device takes."""
    what = "microphone" if direction == "input" else "loudspeaker"
    with _lock:
        library = _looked_again()
        try:
            device = library.query_devices(name or None, direction)
            reason: Exception | None = None
            for each in (rate, int(device["default_samplerate"])):
                try:
                    stream = getattr(library, kind)(
                        samplerate=each, blocksize=int(each * block_s), device=device["index"], channels=1,
                        dtype="int16", latency=_LATENCY_S[direction], **options,
                    )  # fmt: skip
                except library.PortAudioError as error:
                    reason = error
                    continue
                try:
                    stream.start()
                except library.PortAudioError as error:
                    reason = error
                    stream.close()
                else:
                    _streams.add(stream)
                    return stream, each
            assert reason is not None
            raise reason
        except (library.PortAudioError, ValueError) as error:
            missing = f"there is no {what} {name!r}" if name else f"no {what} can be opened"
            raise SoundError(
                f"{missing}: {error}",
                hint="`strawberry voice devices` lists what there is; set it in [voice].",
            ) from None


def _close(stream: Any) -> None:
    with _lock:
        _streams.discard(stream)
        stream.close()
