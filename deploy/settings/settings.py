"""What the user set in ``strawberry.toml`` and ``.env``."""

import os
from collections.abc import Callable
from ipaddress import ip_network
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import tzlocal
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from agent_core.limits import TurnLimits
from agent_core.models.entries import (
    SETTINGS_FILE,
    GatewayKind,
    Model,
    ModelEntry,
    Models,
    choose,
    read_entries,
    read_keys,
    read_tables,
)
from agent_core.prompt import Household, Units
from contracts.errors import ConfigError
from contracts.topics import is_filter
from contracts.validation import Language, TimeZone, did_you_mean, explain
from deploy.home.directory import Home
from voice.settings import VoiceSettings

if TYPE_CHECKING:
    from hub_agent.settings import (
        AuditSettings,
        CaptureSettings,
        MetricsSettings,
        NotificationSettings,
        WatcherSettings,
        WyomingSettings,
    )

_Table = TypeVar("_Table", bound=BaseModel)


class _SettingsTable(BaseModel):
    # Built at first use: a start reads few of the tables.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class _HouseholdTable(_SettingsTable):
    """``[household]``; see ``Household``."""

    language: Language = "en"
    time_zone: TimeZone = Field(default_factory=tzlocal.get_localzone_name)
    units: Units = "metric"
    # They are in every prompt.
    rules: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[^\r\n]{1,300}$")], ...], Field(max_length=20)
    ] = ()
    latitude: Annotated[float, Field(ge=-90, le=90)] | None = None
    longitude: Annotated[float, Field(ge=-180, le=180)] | None = None


class _TurnsTable(_SettingsTable):
    """``[turns]``: when a turn of a model is stopped; see ``TurnLimits``."""

    iterations: Annotated[int, Field(ge=1, le=100)] = TurnLimits.iterations
    # A stream of the hub's lasts 15 minutes at most.
    seconds: Annotated[float, Field(ge=1, le=900)] = TurnLimits.seconds
    context_tokens: Annotated[int, Field(ge=2_000, le=1_000_000)] = TurnLimits.context_tokens


def _network(text: str) -> str:
    return str(ip_network(text, strict=False))


class HttpTable(_SettingsTable):
    """``[http]``: how the hub is reached through a proxy, and by how many.

    Attributes:
        base_path: Where the proxy puts the hub, for example ``/strawberry``.
        names: Host names by which the proxy is reached.
        trusted_proxies: Its addresses or networks. Only from there is a request's word taken for where it
            comes from and whether it came over TLS.
        requests_per_minute: Of one device or token, of which half may come at once.
        connections: At once; two thirds of them may be WebSockets.
    """

    base_path: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = ""
    names: tuple[Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")], ...] = ()
    trusted_proxies: tuple[Annotated[str, AfterValidator(_network)], ...] = ()
    requests_per_minute: Annotated[int, Field(ge=60, le=10_000_000)] = 6_000
    connections: Annotated[int, Field(ge=50, le=20_000)] = 400


class _LogTable(_SettingsTable):
    """``[log]``: how the log is written."""

    format: Literal["text", "json"] = "text"


class _GatewayTable(_SettingsTable):
    """``[gateway]``: how models are asked."""

    kind: GatewayKind = "tensorzero"


class EmbeddingsTable(_SettingsTable):
    """``[embeddings]``: the model by which skills are also searched by meaning.

    Attributes:
        base_url: As in an entry of ``[[models]]``.
        api_key_env: As in an entry of ``[[models]]``.
    """

    provider: Literal["openai", "ollama"]
    model: Annotated[str, Field(min_length=1)]
    base_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None


class LoginTable(_SettingsTable):
    """A broker, and the login on it.

    Attributes:
        password_env: Name of the variable, in ``.env`` or the environment, that holds the password.
        ca: File with the certificate authority of an ``mqtts`` address, seen from the data directory.
    """

    url: Annotated[str, Field(pattern=r"^mqtts?://")]
    username: Annotated[str, Field(min_length=1)] | None = None
    password_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    ca: str | None = None


class HomeBrokerTable(LoginTable):
    """``[home_broker]``: a broker that is in the house already.

    Attributes:
        url: Or ``bus``, where Home Assistant uses the broker of this home.
        publish: Topic filters that the assistant may publish on without asking.
    """

    url: Annotated[str, Field(pattern=r"^(mqtts?://.*|bus)$")]
    publish: tuple[str, ...] = ()

    @field_validator("publish")
    @classmethod
    def _filters(cls, filters: tuple[str, ...]) -> tuple[str, ...]:
        for each in filters:
            if not is_filter(each):
                raise ValueError(f"{each!r} is not a topic filter; one is zigbee2mqtt/+/set")
        return filters


class HomeAssistantTable(_SettingsTable):
    """``[home_assistant]``: a Home Assistant whose entities the assistant uses, and where this home appears.

    Attributes:
        token_env: Name of the variable, in ``.env`` or the environment, that holds its long-lived token.
        ca: File with the certificate authority of an ``https`` address, seen from the data directory.
        confirm: Patterns of entity ids, as ``switch.heater_*``, that are never changed without a question.
        hide: Patterns of entity ids that are not there for the assistant.
        discovery: See `HubSettings`.
    """

    url: Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+/?$")] | None = None
    token_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = "HOME_ASSISTANT_TOKEN"  # noqa: S105
    ca: str | None = None
    confirm: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    discovery: Literal["entity", "device"] = "entity"


class ProtobufTable(_SettingsTable):
    """``[protobuf]``: payloads in protocol buffers.

    Attributes:
        descriptors: Descriptor sets of protoc, seen from the data directory.
        topics: By topic filter, the full name of the message type.
    """

    descriptors: tuple[Annotated[str, Field(min_length=1)], ...]
    topics: dict[str, str]


class BrokerTable(LoginTable):
    """``[broker]``: the bus, where it is not the embedded broker.

    Attributes:
        trust: Use it although Strawberry did not set it up, as ``--trust-broker`` says.
        addresses: What devices are told instead of ``url``, where they reach the broker under another name.
    """

    trust: bool = False
    addresses: tuple[Annotated[str, Field(pattern=r"^mqtts?://")], ...] = ()


_TABLES: Final = (
    "household",
    "http",
    "turns",
    "gateway",
    "embeddings",
    "broker",
    "home_broker",
    "protobuf",
    "captures",
    "watchers",
    "audit",
    "metrics",
    "notifications",
    "log",
    "home_assistant",
    "wyoming",
    "voice",
)


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
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return Household(**(_read(home, "household", _HouseholdTable) or _HouseholdTable()).model_dump())


def read_limits(home: Home) -> TurnLimits:
    """Read when a turn is stopped.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return TurnLimits(**(_read(home, "turns", _TurnsTable) or _TurnsTable()).model_dump())


def read_http(home: Home) -> HttpTable:
    """Read ``[http]``.

    Raises:
        ConfigError: If it cannot be used.
    """
    return _read(home, "http", HttpTable) or HttpTable()


def read_gateway(home: Home) -> GatewayKind:
    """Read how models are asked.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return (_read(home, "gateway", _GatewayTable) or _GatewayTable()).kind


def read_voice(home: Home) -> VoiceSettings:
    """Read how this machine listens and speaks.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return _read(home, "voice", VoiceSettings) or VoiceSettings()


def read_embeddings(home: Home) -> Model | None:
    """Read which model embeds skills; None where there is no such table.

    Raises:
        ConfigError: If the file cannot be used, or the model cannot be asked.
    """
    table = _read(home, "embeddings", EmbeddingsTable)
    if table is None:
        return None
    entry = ModelEntry(name="embeddings", **table.model_dump())
    found = choose((entry,), read_keys(home.directory, os.environ), home=home.directory)
    if not found.usable:
        raise ConfigError(found.problems[0], hint=found.hint)
    return found.usable[0]


def read_broker(home: Home) -> BrokerTable | None:
    """Read ``[broker]``; None where there is no such table.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return _read(home, "broker", BrokerTable)


def read_home_broker(home: Home) -> HomeBrokerTable | None:
    """Read ``[home_broker]``; None where there is no such table.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return _read(home, "home_broker", HomeBrokerTable)


def read_home_assistant(home: Home) -> HomeAssistantTable | None:
    """Read ``[home_assistant]``; None where there is no such table.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return _read(home, "home_assistant", HomeAssistantTable)


def read_protobuf(home: Home) -> ProtobufTable | None:
    """Read ``[protobuf]``; None where there is no such table.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return _read(home, "protobuf", ProtobufTable)


def read_captures(home: Home) -> "CaptureSettings | None":
    """Read ``[captures]``; None where there is no such table."""
    table: CaptureSettings | None = _read_of_hub(home, "captures", "CaptureSettings")
    return table


def read_watchers(home: Home) -> "WatcherSettings | None":
    """Read ``[watchers]``; None where there is no such table."""
    table: WatcherSettings | None = _read_of_hub(home, "watchers", "WatcherSettings")
    return table


def read_audit(home: Home) -> "AuditSettings | None":
    """Read ``[audit]``; None where there is no such table."""
    table: AuditSettings | None = _read_of_hub(home, "audit", "AuditSettings")
    return table


def read_metrics(home: Home) -> "MetricsSettings | None":
    """Read ``[metrics]``; None where there is no such table."""
    table: MetricsSettings | None = _read_of_hub(home, "metrics", "MetricsSettings")
    return table


def read_notifications(home: Home) -> "NotificationSettings | None":
    """Read ``[notifications]``; None where there is no such table."""
    table: NotificationSettings | None = _read_of_hub(home, "notifications", "NotificationSettings")
    return table


def read_wyoming(home: Home) -> "WyomingSettings | None":
    """Read ``[wyoming]``; None where there is no such table."""
    table: WyomingSettings | None = _read_of_hub(home, "wyoming", "WyomingSettings")
    return table


def read_log_format(home: Home) -> Literal["text", "json"]:
    """Read how the log is written.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    return (_read(home, "log", _LogTable) or _LogTable()).format


_OF_A_HUB: Final = (
    read_metrics,
    read_notifications,
    read_http,
    read_embeddings,
    read_broker,
    read_home_broker,
    read_protobuf,
    read_captures,
    read_watchers,
    read_audit,
    read_home_assistant,
    read_wyoming,
)


def check_settings(home: Home, *, hub: bool = True) -> None:
    """Read all settings that a start needs.

    Args:
        hub: Whether a hub starts; a spoke does not use the brokers of the settings.

    Raises:
        ConfigError: If one of them cannot be used.
    """
    readers: list[Callable[[Home], object]] = [read_models, read_household, read_limits, read_gateway]
    readers.append(read_voice)
    for read in [*readers, *(_OF_A_HUB if hub else ())]:
        read(home)


def _read_of_hub(home: Home, name: str, kind: str) -> Any:
    """Read a table with a model of ``hub_agent.settings``; None where there is no such table.

    Raises:
        ConfigError: If the file cannot be used, or holds an unknown table or a wrong value.
    """
    if name not in _known_tables(home):
        return None
    from hub_agent import settings  # what a command that only asks a hub does not load

    return _read(home, name, getattr(settings, kind))


def _read(home: Home, name: str, kind: type[_Table]) -> _Table | None:
    file = home.directory / SETTINGS_FILE
    tables = _known_tables(home)
    if name not in tables:
        return None
    values = tables[name]
    if not isinstance(values, dict):
        raise ConfigError(f"{file}: {name} must be a table", hint=f"Write its lines under [{name}].")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            f"{file}: {explain(error, kind, root=name)}",
            hint=f"Settings of [{name}]: {', '.join(kind.model_fields)}.",
        ) from None


def _known_tables(home: Home) -> dict[str, Any]:
    tables = read_tables(home.directory)
    unknown = [name for name in tables if name not in ("models", *_TABLES)]
    if unknown:
        raise ConfigError(
            f"{home.directory / SETTINGS_FILE}: unknown table {unknown[0]!r}"
            f"{did_you_mean(unknown[0], ('models', *_TABLES))}",
            hint=f"It may hold [[models]] and {', '.join(f'[{name}]' for name in _TABLES)}.",
        )
    return tables
