"""Captures: ``/api/captures``, ``strawberry captures``, their page and their skill."""

import asyncio
from collections.abc import AsyncIterator
from threading import Event
from typing import IO, Annotated, Any, Final

from pydantic import Field

from agent_core.skills.labels import labels_of
from agent_core.skills.skill import skill_method
from chat.http.requests import Download, download
from chat.operations import CHANGE, LOOK, Command, Resource
from contracts.answers.live import LinkName
from contracts.validation import validated
from contracts.wire import json_for_models
from hub_agent.calls.own_skills import HubSkill, offers
from hub_live.captures.captures import Captures
from hub_live.captures.files.formats import FormatName
from hub_live.captures.files.numbers import Numbers, plotted
from hub_live.captures.files.series import CapturedFile, Series
from hub_live.captures.spec import CaptureInfo, CaptureSpec
from hub_registry.access.bearer import Bearer

_PIECE: Final = 256 * 1024

captures: Resource[Captures, Bearer] = Resource(
    "captures",
    "/api/captures",
    columns=("id", "state", "messages", "size=bytes", "files", "gaps", "file", "problem"),
)


@captures.get(
    LOOK,
    command=Command(
        "list", empty="There is no capture yet. 'strawberry captures start PATH TOPIC' makes one."
    ),
    skill="list_captures",
)
@skill_method(read_only=True)
async def list_captures(captures: Captures, asking: Bearer) -> list[CaptureInfo]:
    """List recordings with state, path, messages, size and gaps, also those that were stopped.

    An admin with the scope `admin` sees all.
    """
    return await captures.list(asking.user, of_all=asking.is_admin)


@captures.post(CHANGE, status=201)
async def start(captures: Captures, asking: Bearer, spec: CaptureSpec) -> CaptureInfo:
    """Record topics into a file until the capture is stopped.

    `topics` is a list of filters or of `{"topic", "link"}`, `link` is `bus`, `home` or `home_assistant`.
    """
    return await captures.start(asking.user, spec)


@captures.get(LOOK, "/{capture}")
async def show(captures: Captures, asking: Bearer, capture: str) -> CaptureInfo:
    """Return one capture.

    Beside what it was started with: where it writes, and how much it has.
    """
    return await captures.get(asking.user, capture, of_all=asking.is_admin)


@captures.delete(
    CHANGE,
    "/{capture}",
    command=Command("stop CAPTURE", says="The capture {id} is stopped; it has {messages} messages."),
    skill="stop_capture",
)
@skill_method(idempotent=True)
async def stop(captures: Captures, asking: Bearer, capture: str) -> CaptureInfo:
    """Stop recording; the files stay.

    Args:
        capture: its id, as the list shows it
    """
    return await captures.stop(asking.user, capture, of_all=asking.is_admin)


@captures.get(LOOK, "/{capture}/files")
async def list_files(captures: Captures, asking: Bearer, capture: str) -> list[CapturedFile]:
    """List the files of a capture, oldest first."""
    return await asyncio.to_thread(_series(captures, asking, capture).listed)


@captures.get(LOOK, "/{capture}/files/{name}")
async def file(captures: Captures, asking: Bearer, capture: str, name: str) -> Download:
    """Return a file of a capture, as much as there is of it now."""
    content, size = await asyncio.to_thread(_series(captures, asking, capture).opened, name)
    return download(_pieces(content, size), name, size=size)


@captures.get(LOOK, "/{capture}/numbers")
async def numbers(
    captures: Captures, asking: Bearer, capture: str, field: Annotated[str, Field(max_length=1_000)] = ""
) -> Numbers:
    """Return the numbers of a jsonl or csv capture for a plot.

    `lines` has `[[seconds, value]]` by topic and field, of many points the highs and lows, at most 24 lines;
    `more` counts the others, `cut` says that only the newest 32 MB were read.

    Args:
        field: Fields of the payloads with commas between them; all where none.
    """
    cancelled, fields = Event(), tuple(filter(None, field.split(",")))
    path = _series(captures, asking, capture).path
    try:
        return await asyncio.to_thread(plotted, path, fields=fields, cancelled=cancelled)
    finally:
        cancelled.set()


def _series(captures: Captures, asking: Bearer, capture: str) -> Series:
    return captures.series_of(asking.user, capture, of_all=asking.is_admin)


async def _pieces(file: IO[bytes], size: int) -> AsyncIterator[bytes]:
    """Yield what a file has up to a size, and close it; it may grow meanwhile."""
    with file:
        while size > 0:
            piece = await asyncio.to_thread(file.read, min(_PIECE, size))
            if not piece:
                return
            size -= len(piece)
            yield piece


@offers(captures, on="_captures")
class CaptureSkill(HubSkill):
    """Records what arrives on topics into files."""

    labels = labels_of(
        "CaptureSkill", english={"CaptureSkill": "Captures", "save_stream": "Record", "zstd": "Compressed"}
    )

    def __init__(self, captures: Captures) -> None:
        self._captures = captures

    @skill_method()
    async def save_stream(
        self,
        topics: list[str],
        path: str,
        format: FormatName = "jsonl",  # noqa: A002 - as people say it
        link: LinkName = "bus",
        zstd: bool = False,
    ) -> dict[str, Any]:
        """Record topics into a file from now on, until stop_capture. Also after a restart.

        Args:
            topics: Topic filters, for example devices/nas/state/SystemSkill/+.
            path: Where to write in the folder for captures, for example garage/motion.jsonl.
            format: jsonl for any payload, csv for tables, raw for one topic's bytes, h264 for a camera.
            link: bus for the home's own topics, home for the home broker (zigbee2mqtt and others),
                home_assistant for its entities: light/kitchen.
            zstd: Whether to compress.
        """
        wanted = [{"topic": topic, "link": link} for topic in topics]
        spec = validated(CaptureSpec, {"topics": wanted, "path": path, "format": format, "zstd": zstd})
        return json_for_models(await self._captures.start(self.asking.bearer(CHANGE).user, spec))
