"""Settings of a spoke: frozen, and passed in where it is started."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from agent_core.models.entries import GatewayKind, Models
from agent_core.prompt import Household
from agent_core.skills.running.runner import RunnerSettings
from agent_core.turn import TurnLimits
from contracts.devices.presence import HEARTBEAT_S
from contracts.wire import Strict
from voice.settings import VoiceSettings


class ChatSettings(Strict):
    """How a spoke answers those who talk to it on its own machine.

    Attributes:
        port: On loopback; 0 takes any free one.
        hub_s: How long a message waits for the hub at most, until it is clear who answers it; shared out
            by ``spoke.chat.hub_turn.Deadlines``.
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


class SpokeSettings(Strict):
    """Settings of a spoke.

    Attributes:
        home: The data directory; the spoke keeps its own files in ``spoke`` below it.
        hub_url: Address of the hub, with its base path if it has one; None for the hub already joined.
        hub_key: Fingerprint that the hub's key must have; None trusts the first answer.
        insecure: Whether unencrypted connections to a hub and broker on another machine are allowed.
        skills: Folders with the user's skills.
        samples: Whether the sample skills are offered too, or the names of those that are.
        heartbeat_s: Seconds between two heartbeats.
        hub_wait_s: How long the first status waits for the hub's, which it then answers.
        republish_within_s: Upper bound of the random delay before republishing for a new session of the
            hub, so that a thousand spokes do not publish in the same moment.
        reclaim_s: Least seconds between two corrections of a false status.
        broker_wait_s: How long the start waits for the broker before it goes on without.
        stop_grace_s: How long running calls may take to end when the spoke stops.
        retry_s: Delay after the hub could not be reached over HTTP; doubles up to ``retry_max_s``.
        refused_s: Longest delay before logging in again after the broker refused it.
        check_s: Seconds between two checks of the login and the token's lifetime.
        away_s: How long no broker may answer before the hub is asked for the bus again.
        rejected_s: Delay before asking a hub again that has refused this device.
        refresh_s: How old the device's names and the bus addresses may be before the hub is asked again.
        chat: The chat API on its own machine; None for none.
        models: Models that answer while the hub is away, as ``agent_core.models.entries.choose`` gives them.
        gateway: How the models are asked.
        limits: Limits of their turns.
        household: Language, time zone and units.
        voice: How it listens and speaks.
    """

    home: Path
    hub_url: str | None = None
    hub_key: str | None = None
    insecure: bool = False
    skills: tuple[Path, ...] = ()
    samples: bool | tuple[str, ...] = False
    heartbeat_s: Annotated[float, Field(gt=0)] = HEARTBEAT_S
    hub_wait_s: Annotated[float, Field(ge=0)] = 0.2
    republish_within_s: Annotated[float, Field(ge=0)] = 2
    reclaim_s: Annotated[float, Field(ge=0)] = 5
    broker_wait_s: Annotated[float, Field(ge=0)] = 5
    stop_grace_s: Annotated[float, Field(ge=0)] = 5
    retry_s: Annotated[float, Field(gt=0)] = 1
    retry_max_s: Annotated[float, Field(gt=0)] = 30
    refused_s: Annotated[float, Field(gt=0)] = 30
    check_s: Annotated[float, Field(gt=0)] = 1
    away_s: Annotated[float, Field(ge=0)] = 60
    rejected_s: Annotated[float, Field(gt=0)] = 600
    refresh_s: Annotated[float, Field(gt=0)] = 300
    runner: RunnerSettings = RunnerSettings()
    chat: ChatSettings | None = ChatSettings()
    models: Models = Models()
    gateway: GatewayKind = "tensorzero"
    limits: TurnLimits = TurnLimits()
    household: Household = Household()
    voice: VoiceSettings = VoiceSettings()

    @property
    def directory(self) -> Path:
        return self.home / "spoke"

    @property
    def environments(self) -> Path:
        return self.directory / "environments"

    @property
    def nodes(self) -> Path:
        return self.home / "nodes"
