"""What can be set about a hub; frozen, and passed in by whoever starts it."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent_core.gateway.opening import GatewayKind
from agent_core.loop import TurnLimits
from agent_core.models import Models
from agent_core.prompt import Household
from agent_core.toolset import ToolLimits
from contracts.names import InstanceName


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HttpSettings(_Settings):
    """The HTTP server.

    Attributes:
        port: 0 takes any free one.
        base_path: Where a proxy puts the hub, for example ``/strawberry``; empty for the root.
        max_body_bytes: The largest body of a request.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8321
    base_path: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = ""
    # A long conversation that a client sends along, and the largest message there may be.
    max_body_bytes: Annotated[int, Field(gt=0)] = 1024 * 1024


class BusSettings(_Settings):
    """The broker of this home.

    Attributes:
        url: For example ``mqtt://127.0.0.1:1883``.
        topic_prefix: Stands in front of every topic.
        addresses: Addresses that spokes are told when they join; the URL itself where empty.
    """

    url: str
    topic_prefix: str = ""
    addresses: tuple[str, ...] = ()


class TurnSettings(_Settings):
    """What one turn may use, and how many there may be.

    Attributes:
        limits: When a turn is stopped.
        tools: What its tools may use.
        confirm_s: Seconds until an unanswered question counts as no.
        exchanges: Earlier exchanges of the conversation that are read back.
        per_minute: Messages of one user a minute in the long run.
        burst: Messages of one user at once.
        open_per_user: Turns of one user that run or wait at the same time.
    """

    limits: TurnLimits = TurnLimits()
    tools: ToolLimits = ToolLimits()
    confirm_s: Annotated[float, Field(gt=0)] = 60
    exchanges: Annotated[int, Field(ge=0)] = 100
    per_minute: Annotated[float, Field(gt=0)] = 60
    burst: Annotated[int, Field(gt=0)] = 20
    open_per_user: Annotated[int, Field(gt=0)] = 8


class SandboxSettings(_Settings):
    """The sandbox processes; see ``sandbox_host.pool.PoolSettings``."""

    processes: Annotated[int, Field(gt=0)] = 4
    spares: Annotated[int, Field(ge=0)] = 1
    idle_seconds: Annotated[float, Field(gt=0)] = 600


class HubSettings(_Settings):
    """Settings of one hub process.

    Attributes:
        home: ``STRAWBERRY_HOME``.
        instance: The stable name of this process.
        models: As ``agent_core.models.choose`` gives them.
        gateway: How models are asked.
    """

    home: Path
    bus: BusSettings
    instance: InstanceName = "main"
    http: HttpSettings = HttpSettings()
    models: Models = Models()
    gateway: GatewayKind = "tensorzero"
    turns: TurnSettings = TurnSettings()
    sandbox: SandboxSettings = SandboxSettings()
    household: Household = Household()

    @property
    def directory(self) -> Path:
        """Where the hub keeps its key, its database and its address."""
        return self.home / "hub"

    @property
    def database(self) -> Path:
        """The hub's one database."""
        return self.directory / "hub.db"
