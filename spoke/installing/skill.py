"""``InstallationSkill``: the integrations of this device, for its owner alone."""

from pathlib import Path

from agent_core.skills.skill import Skill, skill_method
from contracts.answers.skills import InstallationAnswer, IntegrationAnswer
from spoke import integrations


class InstallationSkill(Skill):
    """Integrations of this device.

    It is not registered, so that only the hub itself can call it, for the owner of the device.
    """

    def __init__(self, home: Path) -> None:
        self._directory = home / "spoke"

    @skill_method(read_only=True)
    def list_integrations(self) -> InstallationAnswer:
        """List the integrations, and which of them are on."""
        return InstallationAnswer(
            integrations=[
                IntegrationAnswer(
                    name=name,
                    skill=integrations.skill_name(name),
                    about=integrations.summary(name),
                    on=name in integrations.enabled(self._directory),
                )
                for name in integrations.available()
            ],
        )

    @skill_method(idempotent=True)
    def switch_integration(self, name: str, on: bool) -> InstallationAnswer:
        """Turn an integration on or off."""
        integrations.switch(self._directory, name, on=on)
        return self.list_integrations()
