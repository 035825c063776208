"""What the user set in ``strawberry.toml`` and ``.env``, and single tables written by a program."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

import tzlocal
from pydantic import BaseModel, Field, SecretStr, ValidationError, field_validator, model_validator

from agent_core.models.entries import (
    SETTINGS_FILE,
    SETTINGS_LOCK,
    GatewayKind,
    Model,
    ModelEntry,
    Models,
    choose,
    read_entries,
    read_keys,
    read_tables,
)
from agent_core.prompt import Household
from agent_core.turn import TurnLimits
from contracts.answers.system import HomeAssistantRules
from contracts.errors import ConfigError
from contracts.topics import is_filter
from contracts.validation import VariableName, WebAddress, did_you_mean, explain, matching
from contracts.wire import Json, Strict
from deploy.directory import Home
from identity.files import write_private
from voice.settings import VoiceSettings

_Table = TypeVar("_Table", bound=BaseModel)
_BrokerUrl = Annotated[str, matching(r"^mqtts?://", "an address such as mqtt://host:1883")]

_NodeUrl = Annotated[str, matching(r"^(nats|tls)://[^@/]+:\d+$", "an address such as tls://host:4222")]


class _TurnsTable(Strict):
    """``[turns]``: when a turn of a model is stopped; see ``TurnLimits``."""

    iterations: Annotated[int, Field(ge=1, le=100)] = TurnLimits.iterations
    # A stream of the hub's lasts 15 minutes at most.
    seconds: Annotated[float, Field(ge=1, le=900)] = TurnLimits.seconds
    context_tokens: Annotated[int, Field(ge=2_000, le=1_000_000)] = TurnLimits.context_tokens


class LogTable(Strict):
    """``[log]``: how the log is written."""

    format: Literal["text", "json"] = "text"


class _GatewayTable(Strict):
    """``[gateway]``: how models are asked."""

    kind: GatewayKind = "tensorzero"


class EmbeddingsTable(Strict):
    """``[embeddings]``: the model by which skills are also searched by meaning.

    Attributes:
        base_url: As in an entry of ``[[models]]``.
        api_key_env: As in an entry of ``[[models]]``.
    """

    provider: Literal["openai", "ollama"]
    model: Annotated[str, Field(min_length=1)]
    base_url: WebAddress | None = None
    api_key_env: VariableName | None = None


class LoginTable(Strict):
    """A login on a broker.

    Attributes:
        password_env: Name of the variable, in ``.env`` or the environment, that holds the password.
        ca: File with the certificate authority of an ``mqtts`` address, seen from the data directory.
    """

    username: Annotated[str, Field(min_length=1)] | None = None
    password_env: VariableName | None = None
    ca: str | None = None


class HomeBrokerTable(LoginTable):
    """``[home_broker]``: a broker that is in the house already.

    Attributes:
        url: Or ``bus``, where Home Assistant uses the broker of this home.
        publish: Topic filters that the assistant may publish on without asking.
    """

    url: Annotated[str, matching(r"^(mqtts?://.*|bus)$", "bus, or an address such as mqtt://host:1883")]
    publish: tuple[str, ...] = ()

    @field_validator("publish")
    @classmethod
    def _filters(cls, filters: tuple[str, ...]) -> tuple[str, ...]:
        for each in filters:
            if not is_filter(each):
                raise ValueError(f"{each!r} is not a topic filter; one is zigbee2mqtt/+/set")
        return filters


class LanTable(Strict):
    """``[lan]``: access for other machines over TLS, as ``--lan``.

    The page *System* writes it.
    """

    enabled: bool = False


class HomeAssistantTable(HomeAssistantRules):
    """``[home_assistant]``: a Home Assistant whose entities the assistant uses, and where this home appears.

    Attributes:
        token_env: Name of the variable, in ``.env`` or the environment, that holds its long-lived token.
        ca: File with the certificate authority of an ``https`` address, seen from the data directory.
        discovery: See `HubSettings`.
    """

    url: (
        Annotated[
            str, matching(r"^https?://[^/?#@\s]+/?$", "an address without a path, such as http://host:8123")
        ]
        | None
    ) = None
    token_env: VariableName = "HOME_ASSISTANT_TOKEN"  # noqa: S105
    ca: str | None = None
    discovery: Literal["entity", "device"] = "entity"


class BrokerTable(LoginTable):
    """``[broker]``: the bus.

    Attributes:
        url: Of a broker that runs elsewhere; None for the one that Strawberry runs.
        port: Of the one that Strawberry runs; 0 takes any free one.
        trust: Use it although Strawberry did not set it up, as ``--trust-broker`` says.
        addresses: Given to devices instead of ``url``, where they reach the broker under another name.
        kind: ``emqx`` for one with the configuration of ``strawberry render emqx``; ``nats`` for nodes of
            this home that run elsewhere: ``addresses`` are then those of all.
        nodes: Where hubs reach them, with the port of NATS itself.
    """

    url: _BrokerUrl | None = None
    port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    trust: bool = False
    addresses: tuple[_BrokerUrl, ...] = ()
    kind: Literal["emqx", "nats"] | None = None
    nodes: tuple[_NodeUrl, ...] = ()

    @model_validator(mode="after")
    def _one_broker(self) -> Self:
        if self.url is None and self.model_fields_set - {"port"}:
            raise ValueError("url is missing: the other settings are for a broker that runs elsewhere")
        if self.url is not None and self.port is not None:
            raise ValueError("port is for the broker that Strawberry runs itself: leave out port, or url")
        if (self.kind == "nats") != bool(self.nodes):
            raise ValueError('kind = "nats" needs nodes, as ["tls://one.lan:4222"], and nodes needs it')
        return self


class HomeTable(Strict):
    """``[home]``: which of several homes on one database server and one NATS cluster this is.

    Attributes:
        name: Of its schema and its account.
    """

    # As PostgreSQL and NATS both take it without quotes.
    name: Annotated[str, matching(r"^[a-z][a-z0-9]{0,31}$", "up to 32 small letters and digits")]


class DatabaseTable(Strict):
    """``[database]``: the PostgreSQL database of the hub, ``postgresql://user@host/name``."""

    url: SecretStr


_OF_A_SPOKE: Final[dict[str, type[BaseModel]]] = {
    "household": Household,
    "turns": _TurnsTable,
    "gateway": _GatewayTable,
    "voice": VoiceSettings,
    "log": LogTable,
}
_OF_A_HUB: Final[dict[str, type[BaseModel] | str]] = {
    "http": "HttpTable",
    "lan": LanTable,
    "embeddings": EmbeddingsTable,
    "broker": BrokerTable,
    "database": DatabaseTable,
    "home": HomeTable,
    "home_broker": HomeBrokerTable,
    "protobuf": "ProtobufSettings",
    "captures": "CaptureSettings",
    "watchers": "WatcherSettings",
    "audit": "AuditSettings",
    "metrics": "MetricsSettings",
    "notifications": "NotificationSettings",
    "home_assistant": HomeAssistantTable,
    "wyoming": "WyomingSettings",
}
"""A name is one of ``hub_agent.settings``, which a command that only asks a hub does not import."""
_NAMES: Final = ("models", *_OF_A_SPOKE, *_OF_A_HUB)
_SKILLS: Final = "; a skill is set on the page of its device, or by its change_settings"


def read_models(home: Home) -> Models:
    """Read which models can be asked.

    Raises:
        ConfigError: If ``strawberry.toml`` or ``.env`` cannot be used.
    """
    keys = read_keys(home.directory, os.environ)
    return choose(read_entries(home.directory), keys, home=home.directory)


def read_database(home: Home) -> Path | str:
    """Return where the hub's database is: its SQLite file, or the URL of a PostgreSQL database.

    Raises:
        ConfigError: If ``strawberry.toml`` cannot be used.
    """
    table = read_table(home, "database", DatabaseTable)
    return home.hub / "hub.db" if table is None else in_schema(home, table.url.get_secret_value())


def in_schema(home: Home, url: str) -> str:
    """Return the URL of a PostgreSQL database with the schema of this home, where it has a name.

    Raises:
        ConfigError: If ``strawberry.toml`` cannot be used.
    """
    table = read_table(home, "home", HomeTable)
    if table is None:
        return url
    from hub_registry.storage.postgresql import of_home

    return of_home(url, table.name)


def find_database(home: Home) -> Path | str:
    """Return where the hub's database is; the file where ``strawberry.toml`` cannot be used."""
    try:
        return read_database(home)
    except ConfigError:
        return home.hub / "hub.db"


def read_household(home: Home) -> Household:
    """Read what ``strawberry.toml`` says of the household; the time zone is else this machine's.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    found = read_or_default(home, "household", Household)
    if "time_zone" in found.model_fields_set:
        return found
    return found.model_copy(update={"time_zone": tzlocal.get_localzone_name()})


def read_limits(home: Home) -> TurnLimits:
    """Read when a turn is stopped.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return TurnLimits(**read_or_default(home, "turns", _TurnsTable).model_dump())


def read_gateway(home: Home) -> GatewayKind:
    """Read how models are asked.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return read_or_default(home, "gateway", _GatewayTable).kind


def read_voice(home: Home) -> VoiceSettings:
    """Read how this machine listens and speaks.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return read_or_default(home, "voice", VoiceSettings)


def read_broker_port(home: Home) -> int | None:
    """Read on which port the broker that Strawberry runs listens; None where no setting names one.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    table = read_table(home, "broker", BrokerTable)
    return None if table is None else table.port


def read_embeddings(home: Home) -> Model | None:
    """Read which model embeds skills; None where there is no such table.

    Raises:
        ConfigError: If the file cannot be used, or the model cannot be asked.
    """
    table = read_table(home, "embeddings", EmbeddingsTable)
    if table is None:
        return None
    entry = ModelEntry(name="embeddings", **table.model_dump())
    found = choose((entry,), read_keys(home.directory, os.environ), home=home.directory)
    if not found.usable:
        raise ConfigError(found.problems[0], hint=found.hint)
    return found.usable[0]


def check_settings(home: Home, *, hub: bool = True) -> None:
    """Read all settings that a start needs.

    Args:
        hub: Whether a hub starts; a spoke does not use the brokers of the settings.

    Raises:
        ConfigError: If one of them cannot be used.
    """
    read_models(home)
    tables = _known_tables(home)
    for name, kind in (_OF_A_SPOKE | _OF_A_HUB if hub else _OF_A_SPOKE).items():
        if name in tables:
            if isinstance(kind, str):
                from hub_agent import settings

                read_table(home, name, getattr(settings, kind))
            else:
                read_table(home, name, kind)
    if hub:
        read_embeddings(home)


def read_table(home: Home, name: str, kind: type[_Table]) -> _Table | None:
    """Read one table of ``strawberry.toml``; None where there is no such table.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    values = _known_tables(home).get(name)
    if values is None:
        return None
    file = home.directory / SETTINGS_FILE
    if not isinstance(values, dict):
        raise ConfigError(f"{file}: {name} must be a table", hint=f"Write its lines under [{name}].")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            f"{file}: {explain(error, kind, root=name)}",
            hint=f"Settings of [{name}]: {', '.join(kind.model_fields)}.",
        ) from None


def read_or_default(home: Home, name: str, kind: type[_Table]) -> _Table:
    """Read one table of ``strawberry.toml``; its defaults where there is no such table.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return read_table(home, name, kind) or kind()


def _known_tables(home: Home) -> dict[str, Any]:
    tables = read_tables(home.directory)
    unknown = next((name for name in tables if name not in _NAMES), None)
    if unknown is not None:
        where = did_you_mean(unknown, _NAMES) if unknown != "skills" else _SKILLS
        raise ConfigError(
            f"{home.directory / SETTINGS_FILE}: unknown table {unknown!r}{where}",
            hint=f"It may hold [[models]] and {', '.join(f'[{name}]' for name in _NAMES[1:])}.",
        )
    return tables


def write_table(directory: Path, table: str, values: Mapping[str, Json]) -> None:
    """Set values of a table; everything else in the file stays as it is.

    Args:
        values: None removes a value.

    Raises:
        ConfigError: If the file cannot be used as it is.
    """
    import tomlkit

    with SETTINGS_LOCK:
        read_tables(directory)
        file = directory / SETTINGS_FILE
        document = tomlkit.parse(file.read_text("utf-8") if file.exists() else "")
        written = document.setdefault(table, tomlkit.table())
        for name, value in values.items():
            if value is None:
                written.pop(name, None)
            elif written.get(name) != value:
                written[name] = value
        write_private(file, tomlkit.dumps(document).encode())
