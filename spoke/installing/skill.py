"""``InstallationSkill``: integrations and skills of others on this device, for its owner alone."""

from base64 import b64decode
from pathlib import Path

from agent_core.skills.skill import Skill, skill_method
from contracts.answers.skills import InstallationAnswer, IntegrationAnswer, VersionAnswer
from spoke import integrations, limits
from spoke.installing.installation import Installation, changed


class InstallationSkill(Skill):
    """Integrations and skills of others on this device.

    It is not registered, so that only the hub itself can call it, for the owner of the device.
    """

    def __init__(self, home: Path) -> None:
        self._directory = home / "spoke"
        self._installation = Installation(home)

    @skill_method(read_only=True)
    def list_installation(self) -> InstallationAnswer:
        """List integrations and installed skills."""
        on = integrations.enabled(self._directory)
        return InstallationAnswer(
            integrations=[
                IntegrationAnswer(
                    name=name,
                    skill=integrations.skill_name(name),
                    about=integrations.summary(name),
                    on=name in on,
                )
                for name in integrations.available()
            ],
            installed=self._installation.list(),
            takes_uploads=self._installation.takes_uploads,
            uploaded=self._installation.uploaded,
        )

    @skill_method(idempotent=True)
    def switch_integration(self, name: str, on: bool) -> InstallationAnswer:
        """Turn an integration on or off."""
        integrations.switch(self._directory, name, on=on)
        return self.list_installation()

    @skill_method()
    def upload_skill(self, file: str, at: int, piece: str) -> InstallationAnswer:
        """Add a piece in base64 to an archive; the first one starts over."""
        self._installation.add_upload(file, at, b64decode(piece))
        return self.list_installation()

    @skill_method(read_only=True, timeout_s=limits.LONG_CALL_S)
    def show_version(self, name: str) -> VersionAnswer:
        """Fetch an uploaded skill or the newest version of an installed one, and return what it declares."""
        with self._installation.update(name) as found:
            before = found.before
            return VersionAnswer(
                name=found.manifest.name,
                version=found.manifest.version,
                source=found.manifest.source,
                before=None if before is None else before.version or before.source,
                is_same=before is not None and before.digest == found.manifest.digest,
                changes=found.changes,
                overwrites=found.overwrites,
                digest=found.digest,
            )

    @skill_method(destructive=True, timeout_s=limits.LONG_CALL_S)
    def install_version(self, name: str, digest: str) -> InstallationAnswer:
        """Install what `show_version` returned."""
        with self._installation.update(name) as found:
            if found.digest != digest:
                raise changed(name)
            found.install()
        return self.list_installation()

    @skill_method(destructive=True)
    def remove_skill(self, name: str) -> InstallationAnswer:
        """Remove an installed skill; its data and settings are kept."""
        self._installation.remove(name)
        return self.list_installation()
