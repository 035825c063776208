"""What a running hub can do to its own installation: check it, back it up, and start again restored."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from pydantic import SecretStr, ValidationError

from agent_core.models.entries import SETTINGS_LOCK
from agent_core.prompt import Household
from contracts.answers.devices import DeviceAnswer
from contracts.answers.system import HomeAssistantRules, HomeAssistantTrial, McpServers
from contracts.errors import ConfigError, InvalidMessage
from contracts.validation import explain
from deploy.directory import STAGE, Home, discard_restore
from deploy.home.home_assistant import read_access_table
from deploy.home.running import Restart
from deploy.logs.logs import RedactingFormatter, keep_lines
from deploy.settings.options import LanOptions, check_lan_ports
from deploy.settings.settings import (
    HomeAssistantTable,
    check_settings,
    read_household,
    read_or_default,
    write_table,
)
from hub_server.system.host import BackupContents, CheckAnswer, Health, LanAccess, Settings
from hub_server.system.logs import LogRing
from identity.files import is_held

_RULES: Final = set(HomeAssistantRules.model_fields)
_SHARED: Final[
    dict[str, tuple[type[Household | HomeAssistantRules], type[Household | HomeAssistantTable]]]
] = {
    "household": (Household, Household),
    "home_assistant": (HomeAssistantRules, HomeAssistantTable),
}
"""What of a table replicas share, and the table."""


class Maintenance:
    """A `hub_server.system.host.Host`.

    Args:
        restart: None where this process cannot start again by itself.
        ours: Directories of the home that child processes of this one hold.
        lan: How this process was started.
        mqtts: Port for other machines of a broker that is started with this process; None for none.
        is_replica: Whether others may use the database, too.
    """

    def __init__(
        self,
        home: Home,
        *,
        restart: Restart | None,
        ours: Sequence[Path] = (),
        lan: LanOptions | None = None,
        mqtts: int | None = None,
        is_replica: bool = False,
    ) -> None:
        self._home = home
        self._lan = lan or LanOptions()
        self._mqtts = mqtts
        self._restart = restart
        self._ours = tuple(ours)
        self._is_replica = is_replica
        self.logs = keep_lines(LogRing(RedactingFormatter("%(message)s")))
        self.upload = home.directory / STAGE / "upload.age"
        # What an earlier run has left, that was not decided to be restored.
        discard_restore(home)

    @property
    def can_restart(self) -> bool:
        """Return whether a restart restores a backup: nothing else may use the home or its database then."""
        foreign = (each for each in (self._home.broker, self._home.spoke) if each not in self._ours)
        return self._restart is not None and not self._is_replica and not any(map(is_held, foreign))

    def check(self, *, health: Health, devices: list[DeviceAnswer], servers: McpServers) -> list[CheckAnswer]:
        """Look at this installation as ``strawberry doctor`` does, but for a program in the sandbox."""
        from deploy.doctor.doctor import examine  # it imports what only a check needs

        answers = {"/api/health": health, "/api/devices": devices, "/api/mcp/servers": servers}
        found = examine(self._home, ask=lambda path, _: cast("Any", answers.get(path, [])), from_inside=True)
        return [CheckAnswer(**vars(each)) for each in found]

    def write_backup(self, target: BinaryIO, passphrase: SecretStr, *, captures: bool) -> None:
        """Write an encrypted backup."""
        from deploy.backup.writing import write_backup

        write_backup(self._home, target, passphrase, captures=captures)

    def read_backup(self, passphrase: SecretStr) -> BackupContents:
        """Check what was uploaded; nothing that was unpacked stays."""
        from deploy.backup.reading import staged_files

        found = self._unpack(passphrase)
        shutil.rmtree(staged_files(self._home), ignore_errors=True)
        return found

    def restore(self, passphrase: SecretStr, revoke: Sequence[str]) -> BackupContents:
        """Check what was uploaded, and plan to restore it at the next start."""
        from deploy.backup.reading import staged_files
        from deploy.backup.restoring import plan

        if not self.can_restart:
            raise ConfigError(
                "the broker, the spoke or a replica of this hub is a process of its own, which would use the "
                "old data",
                hint="Stop them, and run 'strawberry restore FILE --replace'.",
            )
        summary = self._unpack(passphrase)
        unknown = sorted(set(revoke) - {device.id for device in summary.devices})
        if unknown:
            shutil.rmtree(staged_files(self._home), ignore_errors=True)
            raise ConfigError("the backup has no device {name!r}", name=unknown[0])
        plan(self._home, revoke=revoke)
        return summary

    @property
    def lan(self) -> LanAccess:
        """Return who can connect."""
        obstacle = ""
        if self._restart is None:
            obstacle = "this hub cannot restart by itself"
        elif self._lan.exposure != "loopback" and not self._lan.by_settings:
            obstacle = "the command that starts this hub has an option for it, which is changed there"
        return LanAccess(exposure=self._lan.exposure, obstacle=obstacle)

    def switch_lan(self, enabled: bool) -> None:
        """Write ``[lan]``; what could fail at the next start is tried before."""
        if obstacle := self.lan.obstacle:
            raise ConfigError(obstacle)
        if enabled and self._lan.exposure == "loopback":
            from deploy.certificate import provide_certificate

            check_lan_ports(self._lan, mqtts=self._mqtts)
            provide_certificate(self._home)
        write_table(self._home.directory, "lan", {"enabled": enabled})

    def read_settings(self, kind: type[Settings]) -> Settings:
        """Return what the settings say of the household, or of the entities of Home Assistant."""
        if issubclass(kind, Household):
            return read_household(self._home)
        return HomeAssistantRules(**read_access_table(self._home).model_dump(include=_RULES))

    def write_settings(self, changed: Settings) -> Settings:
        """Write what is given of it into its table."""
        _check_place(changed)
        # Settings that were broken meanwhile would keep the hub from starting again.
        check_settings(self._home)
        table = "household" if isinstance(changed, Household) else "home_assistant"
        write_table(self._home.directory, table, changed.model_dump(mode="json", exclude_unset=True))
        return self.read_settings(type(changed))

    def read_table(self, table: str) -> bytes:
        """Return what the settings file says of a table that replicas share, as JSON."""
        kind, whole = _SHARED[table]
        found = read_or_default(self._home, table, whole)
        values = found.model_dump(mode="json", include=set(kind.model_fields), exclude_unset=True)
        return json.dumps(values).encode() if values else b""

    def replace_table(self, table: str, content: bytes, before: bytes) -> bool:
        """Write what another replica stored, if it is valid."""
        kind, _ = _SHARED[table]
        try:
            wanted = kind.model_validate_json(content or b"{}")
            _check_place(wanted)
        except (ValidationError, ConfigError) as error:
            reason = explain(error, kind, root=table) if isinstance(error, ValidationError) else error
            raise InvalidMessage(
                f"what the database has of [{table}] cannot be used: {reason}",
                hint="Save its page again.",
            ) from None
        check_settings(self._home)
        values = wanted.model_dump(mode="json", exclude_unset=True)
        with SETTINGS_LOCK:
            if self.read_table(table) != before:
                return False
            write_table(self._home.directory, table, {name: values.get(name) for name in kind.model_fields})
        return True

    async def connect_home_assistant(self, url: str, token: SecretStr) -> HomeAssistantTrial:
        """Try address and token, and write them into the settings."""
        from deploy.home.home_assistant import check_token, try_home_assistant, write_home_assistant

        checked = check_token(token.get_secret_value())
        found = await try_home_assistant(self._home, url, checked)
        write_home_assistant(self._home, url, checked)
        return found

    async def connect_home_broker(self, url: str, username: str, password: SecretStr | None) -> None:
        """Log in to a broker, and write it into the settings for the next start."""
        from deploy.home.brokers.bus import connect_home_broker

        await connect_home_broker(self._home, url, username, password)

    def restart(self) -> None:
        if self._restart is not None:
            self._restart.request()

    def _unpack(self, passphrase: SecretStr) -> BackupContents:
        from deploy.backup.reading import unpack

        if self._home.restore_plan.exists():
            # Its files are where this one would be unpacked.
            raise ConfigError("a restore was decided already", hint="Wait for the hub's start.")
        try:
            with self.upload.open("rb") as source:
                return unpack(self._home, source, passphrase)
        except FileNotFoundError:
            raise ConfigError(
                "no backup was uploaded", hint="PUT /api/system/restore sends it in pieces."
            ) from None


def _check_place(settings: Household | HomeAssistantRules) -> None:
    if isinstance(settings, Household) and (settings.latitude is None) != (settings.longitude is None):
        raise ConfigError("latitude and longitude belong together", hint="Fill in both, or none.")
