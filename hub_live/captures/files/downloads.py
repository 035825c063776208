"""The files of a capture, listed and handed out."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Final

from agent_core.times import utc
from contracts.errors import Forbidden, NotFound
from contracts.wire import Part, Timestamp
from hub_live.captures.files.series import Series

_PIECE: Final = 256 * 1024


class CapturedFile(Part):
    """A file of a capture, and when it was changed last."""

    name: str
    bytes: int
    changed_at: Timestamp


def listed(series: Series) -> list[CapturedFile]:
    """Return the files, oldest first; blocks."""
    found = series.found()
    names = [*series.numbers(found).values(), *([series.gaps_file] if series.gaps_file in found else [])]
    return [
        CapturedFile(name=name, bytes=int(found[name].st_size), changed_at=utc(found[name].st_mtime))
        for name in names
    ]


def opened(series: Series, name: str) -> tuple[IO[bytes], int]:
    """Open a file to read it; return it and its present size; blocks.

    Raises:
        NotFound: If it is none of the capture's.
    """
    if Path(name).name == name and (series.numbers([name]) or name == series.gaps_file):
        try:
            with series.directory() as directory:
                # Not a descriptor, which would stay open where the client leaves before the first piece.
                file = os.fdopen(directory.open(name, os.O_RDONLY), "rb")
            return file, os.fstat(file.fileno()).st_size
        except (Forbidden, OSError):
            pass
    raise NotFound("the capture has no file {name!r}", name=name[:200], hint="GET …/files lists them.")


async def pieces(file: IO[bytes], size: int) -> AsyncIterator[bytes]:
    """Yield what a file has up to a size, and close it; it may grow meanwhile."""
    with file:
        while size > 0:
            piece = await asyncio.to_thread(file.read, min(_PIECE, size))
            if not piece:
                return
            size -= len(piece)
            yield piece
