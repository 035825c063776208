"""``strawberry skills available``, ``enable`` and ``disable``: the integrations of this machine."""

import argparse
from typing import Any, Final

from pydantic import SecretStr

from contracts.errors import ConfigError
from deploy.cli.hub.calling import typed_value
from deploy.cli.terminal.output import Output
from deploy.directory import Home

_WHEN: Final = "A running spoke takes it over within seconds."


def available(options: argparse.Namespace) -> None:
    """List the integrations that can be turned on.

    Lists the integrations that come with Strawberry, and which of them are on for this machine.
    """
    from spoke import integrations

    on = integrations.enabled(Home.named().spoke)
    rows = [
        {"name": name, "on": name in on, "about": integrations.summary(name)}
        for name in integrations.available()
    ]
    Output(options.json).rows(rows, lambda row: row, empty="There are none.")


def enable(options: argparse.Namespace) -> None:
    """Turn an integration on for this machine, with its settings.

    Turns an integration on for this machine; a spoke that runs takes it over within seconds.
    """
    from agent_core.skills.settings import StoredSettings
    from spoke import integrations

    home = Home.named()
    skill = integrations.skill_of(options.name)
    fields = skill.Settings.model_fields if skill.Settings is not None else {}
    given: dict[str, Any] = {}
    for word in options.settings:
        setting, equals, text = word.partition("=")
        if setting not in fields or not equals:
            raise ConfigError(
                "{text!r} is no setting of {name}",
                text=word,
                name=options.name,
                hint=f"Write settings as SETTING=VALUE; there are: {', '.join(fields) or 'none'}.",
            )
        if fields[setting].annotation is SecretStr:
            raise ConfigError(
                "{name} is a secret, which others could see on a command line",
                name=setting,
                hint=f"Leave it out, and run 'strawberry skills settings {skill.__name__}' later.",
            )
        given[setting] = typed_value(text)
    if given and options.name in integrations.enabled(home.spoke):
        raise ConfigError(
            "{name} is on already",
            name=options.name,
            hint=f"Change its settings with 'strawberry skills settings {skill.__name__} …'.",
        )
    if given and skill.Settings is not None:
        folder = home.spoke / "data" / skill.__name__
        StoredSettings(skill.Settings, folder, skill=skill.__name__, variables={}).change(given)
    integrations.switch(home.spoke, options.name, on=True)
    Output(options.json).result(
        {"name": options.name, "on": True}, text=f"{options.name} is on ({skill.__name__}). {_WHEN}"
    )


def disable(options: argparse.Namespace) -> None:
    """Turn an integration off for this machine; its settings are kept."""
    from spoke import integrations

    integrations.switch(Home.named().spoke, options.name, on=False)
    Output(options.json).result({"name": options.name, "on": False}, text=f"{options.name} is off. {_WHEN}")
