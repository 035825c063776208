"""What the hub needs of the program that runs it; `deploy` has it."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeVar

from pydantic import SecretStr

from agent_core.prompt import Household
from contracts.answers.devices import DeviceAnswer
from contracts.answers.system import (
    HomeAssistantRules,
    HomeAssistantTrial,
    LinkHealth,
    McpServers,
)
from contracts.wire import OrAbsent, Part, Phrased, PhraseText
from hub_agent.bus.connection import BusHealth
from hub_home_assistant.inward.client import HomeAssistantHealth
from hub_server.system.logs import LogRing

Settings = TypeVar("Settings", Household, HomeAssistantRules)


class Health(Part):
    """Whether the hub has its links, for all who have a token; a link is None where there is none.

    Attributes:
        without_values: How many watchers and captures get no values of a topic.
    """

    status: Literal["ok", "degraded"]
    version: str
    instance: str
    broker: BusHealth
    home_broker: LinkHealth | None
    home_assistant: HomeAssistantHealth | None
    without_values: int
    model: str | None


class LinkUp(Part):
    """Whether a link is connected."""

    connected: bool


class PublicHealth(Part):
    """The health of the hub for anybody: the links that there are, and whether all is well."""

    broker: LinkUp
    home_broker: OrAbsent[LinkUp] = None
    home_assistant: OrAbsent[LinkUp] = None
    status: str


class CheckAnswer(Phrased):
    """What was looked at, whether it works, how it is, and what to do about it."""

    check: PhraseText
    ok: bool
    detail: PhraseText
    hint: PhraseText


class BackupDevice(Part):
    """A device that may log in after a backup is restored."""

    id: str
    name: str


class BackupContents(Part):
    """What a backup holds, for a person who decides whether to restore it.

    Attributes:
        version: Of the Strawberry that wrote it.
        created_at: When, RFC 3339.
        people: Names of the users.
        bytes: Size of all files.
        captures: Whether captures are in it.
        problems: What in it will not work on this machine.
    """

    version: str
    created_at: str
    hub_id: str
    devices: list[BackupDevice]
    people: list[str]
    conversations: int
    files: int
    bytes: int
    captures: bool
    problems: list[str]


class LanAccess(Phrased):
    """Who can connect to the hub, and whether it can be changed here.

    Attributes:
        exposure: This machine only, other machines over TLS, or other machines without encryption.
        obstacle: Why it cannot be changed here; empty where it can.
    """

    exposure: Literal["loopback", "tls", "insecure"]
    obstacle: PhraseText


class Host(Protocol):
    """The installation around a hub. What blocks is called in a thread.

    Attributes:
        logs: The latest lines of the log, without secrets.
        upload: Where a backup is put together that is to be restored.
    """

    logs: LogRing
    upload: Path

    @property
    def can_restart(self) -> bool:
        """Return whether the hub starts again by itself to restore a backup."""

    def check(self, *, health: Health, devices: list[DeviceAnswer], servers: McpServers) -> list[CheckAnswer]:
        """Look at this installation; blocks."""

    def write_backup(self, target: BinaryIO, passphrase: SecretStr, *, captures: bool) -> None:
        """Write an encrypted backup; blocks.

        Raises:
            ConfigError: If it cannot be written, or the passphrase is too short.
        """

    def read_backup(self, passphrase: SecretStr) -> BackupContents:
        """Check what was uploaded, and return what it holds; blocks.

        Raises:
            ConfigError: If it is not a whole backup that this version can use.
        """

    def restore(self, passphrase: SecretStr, revoke: Sequence[str]) -> BackupContents:
        """Check what was uploaded, and decide that it takes the place of what is there; blocks.

        Args:
            revoke: Ids of devices that do not come back.

        Raises:
            ConfigError: As `read_backup`, or if this hub cannot be restored while it runs.
        """

    @property
    def lan(self) -> LanAccess:
        """Return who can connect."""

    def switch_lan(self, enabled: bool) -> None:
        """Allow or end access for other machines over TLS, from the next start on; blocks.

        Raises:
            ConfigError: If it cannot be changed here, a port is taken, or the certificates cannot be made.
        """

    def read_settings(self, kind: type[Settings]) -> Settings:
        """Return what the settings say of the household, or of the entities of Home Assistant; blocks.

        Raises:
            ConfigError: If they cannot be used.
        """

    def write_settings(self, changed: Settings) -> Settings:
        """Write what is given of it into the settings, and return all; blocks.

        The hub takes up those of Home Assistant by itself, the others at the next start.

        Raises:
            ConfigError: If they cannot be used.
        """

    def read_table(self, table: str) -> bytes:
        """Return what the settings file alone says of `household` or `home_assistant`, as JSON; blocks.

        Of Home Assistant these are its `HomeAssistantRules`. It is empty where nothing is set.

        Raises:
            ConfigError: If the settings cannot be used.
        """

    def replace_table(self, table: str, content: bytes, before: bytes) -> bool:
        """Make this all that the settings file says of it; blocks.

        Args:
            before: What it must still say; False is returned where it does not.

        Raises:
            ConfigError: If the settings cannot be used.
            InvalidMessage: If this cannot be used.
        """
        ...

    async def connect_home_assistant(self, url: str, token: SecretStr) -> HomeAssistantTrial:
        """Try address and token of Home Assistant, and write them into the settings.

        Raises:
            ConfigError: If one of them cannot be used.
            LinkError: If it is not there, or refuses the token; nothing was written then.
        """

    async def connect_home_broker(self, url: str, username: str, password: SecretStr | None) -> None:
        """Log in to a broker, and write it into the settings as the home broker, for the next start.

        Raises:
            ConfigError: If the address or the settings cannot be used.
            LinkError: If it does not accept the login; nothing was written then.
        """
        ...

    def restart(self) -> None:
        """End the hub in its order, and start it again."""
