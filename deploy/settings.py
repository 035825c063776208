"""What the user set in ``strawberry.toml`` and ``.env``."""

import os
from typing import Annotated
from zoneinfo import ZoneInfo

import tzlocal
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agent_core.models import SETTINGS_FILE, Models, choose, read_entries, read_keys, read_tables
from agent_core.prompt import Household, Units
from contracts.errors import ConfigError
from deploy.home import Home

_TABLES = ("models", "household")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")

    language: Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$")] = "en"
    time_zone: str = Field(default_factory=tzlocal.get_localzone_name)
    units: Units = "metric"

    @field_validator("time_zone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"there is no time zone {name!r}; one is Europe/Berlin") from None
        return name


def read_models(home: Home) -> Models:
    """Read which models can be asked.

    Raises:
        ConfigError: If ``strawberry.toml`` or ``.env`` cannot be used.
    """
    keys = read_keys(home.directory, os.environ)
    return choose(read_entries(home.directory), keys, home=home.directory)


def read_household(home: Home) -> Household:
    """Read what ``strawberry.toml`` says of the household; the time zone is else this machine's.

    Raises:
        ConfigError: If the file cannot be used, or holds a table or a value that nobody knows.
    """
    file = home.directory / SETTINGS_FILE
    tables = read_tables(home.directory)
    unknown = [name for name in tables if name not in _TABLES]
    if unknown:
        raise ConfigError(
            f"{file}: nothing is called {unknown[0]!r}", hint="It may hold [[models]] and [household]."
        )
    values = tables.get("household", {})
    if not isinstance(values, dict):
        raise ConfigError(f"{file}: household must be a table", hint="Write its lines under [household].")
    try:
        table = _Table.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("household", *map(str, first["loc"])))
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigError(
            f"{file}: {where}: {reason}", hint=f"Fields: {', '.join(_Table.model_fields)}."
        ) from None
    return Household(**table.model_dump())
