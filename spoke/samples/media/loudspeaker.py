"""The loudspeaker of this computer, through PulseAudio or PipeWire (``pactl``)."""

import asyncio
import os
import re
import shutil
from asyncio.subprocess import PIPE
from typing import Final

from bus.processes import open_process
from contracts.errors import ConfigError

_PROGRAM: Final = "pactl"
_SINK: Final = "@DEFAULT_SINK@"
_ANSWER_S: Final = 5.0


def has_loudspeaker() -> bool:
    return shutil.which(_PROGRAM) is not None


async def volume() -> int:
    """Return how loud it is, in per cent."""
    found = re.search(r"(\d+)%", await _run("get-sink-volume", _SINK))
    return int(found[1]) if found is not None else 0


async def set_volume(percent: int) -> int:
    await _run("set-sink-volume", _SINK, f"{percent}%")
    return percent


async def set_muted(muted: bool) -> None:
    await _run("set-sink-mute", _SINK, str(int(muted)))


async def _run(*words: str) -> str:
    """Run ``pactl``, and return what it prints.

    Raises:
        ConfigError: It is not installed, or there is no sound server.
    """
    hint = "It needs pactl, and PulseAudio or PipeWire running for the user of the spoke."
    pactl = open_process((_PROGRAM, *words), env={**os.environ, "LC_ALL": "C"}, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(_ANSWER_S), pactl as process:
            output, problem = await process.communicate()
    except OSError:  # also where it takes too long
        raise ConfigError("the volume of this computer cannot be set", hint=hint) from None
    if process.returncode:
        reason = problem.decode("utf-8", "replace").strip().partition("\n")[0][:200]
        raise ConfigError("the sound server refuses: {reason}", reason=reason, hint=hint)
    return output.decode("utf-8", "replace")
