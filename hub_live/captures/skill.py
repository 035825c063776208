"""Captures for the assistant: ``devices.hub.CaptureSkill``."""

from typing import Any

from agent_core.skills.labels import labels_of
from agent_core.skills.skill import skill_method
from chat.operations import CHANGE
from contracts.answers.live import LinkName
from contracts.validation import validated
from contracts.wire import json_for_models
from hub_agent.calls.own_skills import HubSkill, offers
from hub_live.captures.captures import Captures
from hub_live.captures.files.formats import FormatName
from hub_live.captures.operations import captures
from hub_live.captures.spec import CaptureSpec


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
