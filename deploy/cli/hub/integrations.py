"""``strawberry skills available``, ``enable`` and ``disable``: the integrations of this machine."""

import argparse
from typing import Any

from pydantic import SecretStr

from contracts.errors import ConfigError
from deploy.cli.hub.calling import typed_value
from deploy.cli.terminal.output import Output
from deploy.directory import Home


def available(options: argparse.Namespace) -> None:
    """List the integrations that can be turned on.

    Lists the integrations that come with Strawberry, and which of them are on for this machine.
    """
    from spoke import integrations

    on = integrations.enabled(Home.named().spoke)
    known = integrations.available()
    rows = [{"name": name, "on": name in on, "about": integrations.summary(name)} for name in known]
    Output(options.json).rows(rows, lambda row: row, empty="There are none.")


def enable(options: argparse.Namespace) -> None:
    """Turn an integration on for this machine, with its settings.

    Turns an integration on for this machine; a spoke that runs loads it within seconds.
    """
    from agent_core.skills.settings import StoredSettings
    from spoke import integrations

    home, skill = Home.named(), integrations.skill_of(options.name)
    fields = skill.Settings.model_fields if skill.Settings is not None else {}
    later = f"'strawberry skills settings {skill.__name__}' sets them later."
    if options.settings and options.name in integrations.enabled(home.spoke):
        raise ConfigError("{name} is on already", name=options.name, hint=later)
    given: dict[str, Any] = {}
    for word in options.settings:
        setting, _, text = word.partition("=")
        if setting not in fields:
            known = ", ".join(fields) or "none"
            raise ConfigError("there is no setting {name!r}", name=setting, hint=f"The settings are {known}.")
        if fields[setting].annotation is SecretStr:
            reason = "{name} is a secret, which others could see on a command line"
            raise ConfigError(reason, name=setting, hint=later)
        given[setting] = typed_value(text)
    if skill.Settings is not None:
        folder = home.spoke / "data" / skill.__name__
        StoredSettings(skill.Settings, folder, skill=skill.__name__, variables={}).change(given)
    integrations.switch(home.spoke, options.name, on=True)
    _tell(options, f"{skill.__name__} is on. A spoke that runs loads it within seconds.")


def disable(options: argparse.Namespace) -> None:
    """Turn an integration off for this machine; its settings are kept."""
    from spoke import integrations

    integrations.switch(Home.named().spoke, options.name, on=False)
    _tell(options, f"{options.name} is off.")


def _tell(options: argparse.Namespace, text: str) -> None:
    Output(options.json).result({"name": options.name, "on": options.command == "enable"}, text=text)
