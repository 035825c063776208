"""What can be set about a spoke; frozen, and passed in by whoever starts it."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_core.limits import TurnLimits
from agent_core.models.entries import GatewayKind, Models
from agent_core.prompt import Household
from agent_core.skills.runner import RunnerSettings
from contracts.presence import HEARTBEAT_S


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PublishingBounds(_Settings):
    """What the skills of one spoke may publish by ``state`` and ``emit``, all together.

    Attributes:
        states: Different values; the hub refuses a device that fills the broker with retained topics.
        waiting_events: Events that wait to be sent; the next one is dropped.
        rate: Messages a second in the long run.
        burst: Messages at once.
    """

    states: Annotated[int, Field(gt=0)] = 512
    waiting_events: Annotated[int, Field(gt=0)] = 256
    rate: Annotated[float, Field(gt=0)] = 20
    burst: Annotated[int, Field(gt=0)] = 100


class ChatSettings(_Settings):
    """How a spoke answers those who talk to it on its own machine.

    Attributes:
        port: On loopback; 0 takes any free one.
        hub_s: How long a message waits for the hub at most, until it is clear who answers it; shared out
            by ``spoke.chat.patience``.
        silent_s: How long an answer that has begun may be silent until the hub is asked whether it lives.
        check_s: How long it may take to say so, then and where it is tried again.
        retry_s: Wait until a hub that did not answer is tried again; doubles up to ``retry_max_s``.
        confirm_s: Seconds until an unanswered question counts as no.
        exchanges: Earlier exchanges of the conversation that are read back.
        open_turns: Turns that run or wait at the same time.
        max_body_bytes: The largest body of a request.
    """

    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    hub_s: Annotated[float, Field(gt=0)] = 4
    silent_s: Annotated[float, Field(gt=0)] = 5
    check_s: Annotated[float, Field(gt=0)] = 2
    retry_s: Annotated[float, Field(gt=0)] = 1
    retry_max_s: Annotated[float, Field(gt=0)] = 30
    confirm_s: Annotated[float, Field(gt=0)] = 60
    exchanges: Annotated[int, Field(ge=0)] = 100
    open_turns: Annotated[int, Field(gt=0)] = 8
    max_body_bytes: Annotated[int, Field(gt=0)] = 1024 * 1024


class SpokeSettings(_Settings):
    """Settings of a spoke.

    Attributes:
        home: The data directory; the spoke keeps its own files in ``spoke`` below it.
        hub_url: Address of the hub, with its base path if it has one; None for the one that was joined.
        hub_key: Fingerprint that the hub's key must have; None trusts the first answer.
        insecure: Whether the hub and its broker may be spoken to over connections that others can read.
        skills: Folders with the user's skills.
        samples: Whether the sample skills are offered too.
        version: Of the software, told with each status.
        heartbeat_s: Seconds between two heartbeats.
        hub_wait_s: How long the first status waits for the hub's, which it then answers.
        republish_within_s: How long publishing again for a new session of the hub may wait, by
            chance, so that a thousand spokes do not all speak in the same moment.
        reclaim_s: Seconds between two answers to false messages in this device's name, at least.
        broker_wait_s: How long starting waits for the broker; after it the spoke goes on trying.
        stop_grace_s: How long running calls may take to end when the spoke stops.
        retry_s: Wait after the hub could not be reached over HTTP; doubles up to ``retry_max_s``.
        refused_s: Wait before logging in again after the broker refused it.
        look_s: Seconds between two looks at whether the device is still let in and its token lasts.
        away_s: How long no broker may answer before the hub is asked where the bus is now.
        rejected_s: Wait before asking a hub again that has said that it lets this device in no more.
        refresh_s: How old the device's names and the bus addresses may be before the hub is asked again.
        chat: The way in for those who talk to it on its own machine; None for none.
        models: What answers while the hub is away, as ``agent_core.models.entries.choose`` gives them.
        gateway: How they are asked.
        limits: When a turn of theirs is stopped.
        household: Language, time zone and units.
    """

    home: Path
    hub_url: str | None = None
    hub_key: str | None = None
    insecure: bool = False
    skills: tuple[Path, ...] = ()
    samples: bool = False
    version: str = ""
    heartbeat_s: Annotated[float, Field(gt=0)] = HEARTBEAT_S
    hub_wait_s: Annotated[float, Field(ge=0)] = 0.2
    republish_within_s: Annotated[float, Field(ge=0)] = 2
    reclaim_s: Annotated[float, Field(ge=0)] = 5
    broker_wait_s: Annotated[float, Field(ge=0)] = 5
    stop_grace_s: Annotated[float, Field(ge=0)] = 5
    retry_s: Annotated[float, Field(gt=0)] = 1
    retry_max_s: Annotated[float, Field(gt=0)] = 30
    refused_s: Annotated[float, Field(gt=0)] = 30
    look_s: Annotated[float, Field(gt=0)] = 1
    away_s: Annotated[float, Field(ge=0)] = 60
    rejected_s: Annotated[float, Field(gt=0)] = 600
    refresh_s: Annotated[float, Field(gt=0)] = 300
    publishing: PublishingBounds = PublishingBounds()
    runner: RunnerSettings = RunnerSettings()
    chat: ChatSettings | None = ChatSettings()
    models: Models = Models()
    gateway: GatewayKind = "tensorzero"
    limits: TurnLimits = TurnLimits()
    household: Household = Household()

    @property
    def directory(self) -> Path:
        """Where the spoke keeps its own files."""
        return self.home / "spoke"
