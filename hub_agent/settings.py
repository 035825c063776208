"""Settings of a hub: frozen, and passed in."""

from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from agent_core.models.entries import GatewayKind, Model, Models
from agent_core.prompt import Household
from agent_core.turn import TurnLimits
from contracts.addresses import HTTP_PORT, HTTPS_PORT, endpoint
from contracts.answers.system import HomeAssistantRules
from contracts.devices.joining import Login
from contracts.names import InstanceName
from contracts.validation import IpAddress, matching
from contracts.wire import Strict

BusKind = Literal["embedded", "mosquitto", "emqx", "nats", "shared"]
"""Our own broker; one of another make that was set up for this home; a broker that others administer."""


MAIN: Final = "main"
"""Name of the hub that is alone, and of what belongs to the home, whichever replica leads."""


class LanSettings(Strict):
    """The second listener of the HTTP server, for other machines.

    Attributes:
        host: An address of this machine; by default all of IPv4.
        port: 0 takes any free one.
        certificates: Directory with the server certificate of this home; a renewed one counts from the
            next connection on.
        insecure: Whether to listen in the clear instead.
        names: Host names of this machine, besides those that the certificate is for.
        told: Names and addresses by which a person says that it is reached, the best first.
    """

    # There is such a listener only where a person asked for it.
    host: IpAddress = "0.0.0.0"  # noqa: S104
    port: Annotated[int, Field(ge=0, le=65_535)] = HTTPS_PORT
    certificates: Path | None = None
    insecure: bool = False
    names: tuple[str, ...] = ()
    told: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _tls_or_not(self) -> Self:
        if self.insecure == (self.certificates is not None):
            raise ValueError("either certificates, or insecure spelled out")
        return self


def _network(text: str) -> str:
    return str(ip_network(text, strict=False))


class HttpTable(Strict):
    """``[http]``: how the hub is reached through a proxy, and by how many.

    Attributes:
        base_path: Where the proxy puts the hub, for example ``/strawberry``; empty for the root.
        names: Host names by which the proxy is reached, in small letters.
        trusted_proxies: Its addresses or networks. Only from there is a request's word taken for where it
            comes from and whether it came over TLS.
        requests_per_minute: Of one device or token, of which half may come at once; see
            `hub_registry.access.bearer.Gate`.
        connections: At once, of each listener; see `chat.http.connections`. Two thirds may be WebSockets.
    """

    base_path: Annotated[str, matching(r"^(/[A-Za-z0-9._~-]+)*$", "a path such as /strawberry")] = ""
    names: tuple[Annotated[str, matching(r"^[a-z0-9.-]+$", "a host name in small letters")], ...] = ()
    trusted_proxies: tuple[Annotated[str, AfterValidator(_network)], ...] = ()
    # A page of the web UI makes some ten requests when it opens, and a few a second after that.
    requests_per_minute: Annotated[int, Field(ge=60, le=10_000_000)] = 6_000
    connections: Annotated[int, Field(ge=50, le=20_000)] = 400


class HttpSettings(HttpTable):
    """The HTTP server.

    Attributes:
        port: 0 takes any free one.
        max_body_bytes: The largest body of a request.
        lan: The way in for other machines; None for none.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = HTTP_PORT
    # A long conversation that a client sends along, and the largest message there may be.
    max_body_bytes: Annotated[int, Field(gt=0)] = 1024 * 1024
    lan: LanSettings | None = None

    @property
    def has_proxy(self) -> bool:
        return bool(self.base_path or self.names or self.trusted_proxies)


class BusSettings(Strict):
    """The broker that is the bus of this home.

    Attributes:
        url: For example ``mqtt://127.0.0.1:1883`` or, with TLS, ``mqtts://hub.local:8883``.
        kind: What kind of broker it is; decides how the hub logs in.
        topic_prefix: In front of every topic; for a shared broker.
        login: The ordinary login of a shared broker; a broker of our own needs none.
        ca: PEM of the authorities that the broker's certificate must come from; None for those of the
            system.
        addresses: Addresses that spokes get when they join; the URL itself where empty.
        nodes: Where a hub reaches the servers of NATS, as ``nats://127.0.0.1:4222``.
        is_ours: Asked before each login on a broker of our own, because what listens there may have
            changed: where it returns False, nothing is sent.
    """

    url: str
    kind: BusKind = "embedded"
    topic_prefix: str = ""
    login: Login | None = None
    ca: str | None = None
    addresses: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    is_ours: Callable[[], bool] = Field(default=lambda: True, repr=False)

    @property
    def urls(self) -> tuple[str, ...]:
        """Return where the hub connects: to any node, or to its own address for all of them (Kubernetes)."""
        own, nodes = endpoint(self.url), {endpoint(each): each for each in self.addresses}
        is_node = self.kind == "nats" and own in nodes
        return tuple(({own: self.url} | nodes).values()) if is_node else (self.url,)

    @property
    def qos(self) -> Literal[0, 1]:
        # Calls and their results are repeated by us, not by the broker.
        return 0 if self.kind == "nats" else 1

    @model_validator(mode="after")
    def _login_of_its_kind(self) -> Self:
        if self.login is not None and self.kind != "shared":
            raise ValueError("only a shared broker has an ordinary login")
        if self.kind == "nats" and not self.nodes:
            raise ValueError("NATS needs its nodes")
        if self.topic_prefix and self.kind == "mosquitto":
            # Its control topics are reached over the same link, and have none.
            raise ValueError("a Mosquitto of our own has no prefix")
        return self


class HomeLinkSettings(Strict):
    """A broker of the house that is used beside the bus.

    Attributes:
        login: Its ordinary login; None where it asks for none.
        ca: As in `BusSettings`.
        publish: Topic filters that the assistant may publish on without a confirmation.
        is_bus: Whether it is the bus, a broker of our own, which gets the hub's login there.
    """

    url: str
    is_bus: bool = False
    login: Login | None = None
    ca: str | None = None
    publish: tuple[str, ...] = ()


class HomeAssistantAccess(HomeAssistantRules):
    """A Home Assistant whose entities are used.

    Attributes:
        token: Long-lived access token of one of its users.
        ca: PEM of the authorities that the certificate of an ``https`` address must come from; None for those
            of the system.
    """

    url: str
    token: SecretStr
    ca: str | None = None


class ProtobufSettings(Strict):
    """``[protobuf]``: payloads in protocol buffers.

    Attributes:
        descriptors: Descriptor sets of protoc; in the file, seen from the data directory.
        topics: By topic filter, the full name of the message type.
    """

    descriptors: tuple[Path, ...]
    topics: dict[str, str]


class TurnSettings(Strict):
    """What one turn may use.

    Attributes:
        limits: When a turn is stopped.
        confirm_s: Seconds until an unanswered question counts as no.
        exchanges: Earlier exchanges of the conversation that are read back, at most.
    """

    limits: TurnLimits = TurnLimits()
    confirm_s: Annotated[float, Field(gt=0)] = 60
    exchanges: Annotated[int, Field(ge=0)] = 100


class QuotaSettings(Strict):
    """What one token may use; all together may use four times as much, of which a quarter is for people.

    Attributes:
        per_minute: Messages a minute in the long run, exact sentences not counted.
        burst: Messages at once.
        open_turns: Turns that run or wait at the same time.
        calls: Direct calls, and programs that are run directly, that begin at the same time; more wait.
        lasting: Direct calls that run at the same time.
        programs: Programs likewise.
        waiting: Direct calls and programs that may wait.
    """

    per_minute: Annotated[float, Field(gt=0)] = 60
    burst: Annotated[int, Field(gt=0)] = 20
    open_turns: Annotated[int, Field(gt=0)] = 8
    calls: Annotated[int, Field(gt=0)] = 4
    lasting: Annotated[int, Field(gt=0)] = 64
    programs: Annotated[int, Field(gt=0)] = 4
    waiting: Annotated[int, Field(gt=0)] = 256


class WatcherSettings(Strict):
    """``[watchers]``: what watchers may use.

    Attributes:
        model: Name of the entry of ``[[models]]`` that evaluates them; None for all in their order.
        evaluations_per_minute: Of all watchers, by a model.
        tokens_per_day: Of all watchers, questions and answers together.
        actions_per_hour: Of each watcher that sets no other number.
        record_days: How long the values that watchers see are kept for later tests.
        record_mb: How much of them is kept.
    """

    model: str | None = None
    evaluations_per_minute: Annotated[int, Field(ge=1, le=600)] = 10
    tokens_per_day: Annotated[int, Field(ge=1_000)] = 500_000
    actions_per_hour: Annotated[int, Field(ge=1, le=1_000)] = 10
    record_days: Annotated[float, Field(ge=0, le=366)] = 7
    record_mb: Annotated[int, Field(ge=1)] = 256


class SandboxSettings(Strict):
    """The sandbox processes; see ``sandbox_host.pool.PoolSettings``."""

    processes: Annotated[int, Field(gt=0)] = 4
    spares: Annotated[int, Field(ge=0)] = 1
    idle_seconds: Annotated[float, Field(gt=0)] = 600


class CaptureSettings(Strict):
    """``[captures]``: where captures may write, and how much they may keep.

    Attributes:
        folders: Allowed folders, seen from the data directory; paths count from the first.
        total_mb: Of all captures together; the oldest files go first.
        folder_mb: Of one folder; None for no other limit than that of all.
        folder_files: Likewise.
        keep_days: Older files are removed; None to keep them.
        free_mb: What stays free on the disk, for the rest of the home.
    """

    folders: Annotated[tuple[Path, ...], Field(min_length=1)] = (Path("captures"),)
    total_mb: Annotated[float, Field(gt=0)] = 10 * 1024
    folder_mb: Annotated[float, Field(gt=0)] | None = None
    folder_files: Annotated[int, Field(gt=0)] = 10_000
    keep_days: Annotated[float, Field(gt=0)] | None = None
    free_mb: Annotated[float, Field(ge=0)] = 256


class AuditSettings(Strict):
    """``[audit]``: how long it is kept who called what."""

    keep_days: Annotated[float, Field(gt=0, le=3_660)] = 365


class MetricsSettings(Strict):
    """``[metrics]``: who may read ``/metrics``.

    Attributes:
        loopback: Whether programs on this machine need no token.
    """

    loopback: bool = False


class NotificationSettings(Strict):
    """``[notifications]``: where people get notifications beside the web UI.

    Attributes:
        urls: Addresses of apprise, or services of Home Assistant (``notify.NAME``), for those people who have
            none of their own. ``${NAME}`` in an address is a variable of ``.env``.
        people: The addresses of a person, by the person's id.
        push_private: Whether the push service of a browser may be in this network, and without TLS.
    """

    push_private: bool = False
    urls: Annotated[tuple[str, ...], Field(max_length=20)] = ()
    people: dict[str, Annotated[tuple[str, ...], Field(max_length=20)]] = {}


class WyomingSettings(Strict):
    """``[wyoming]``: the assistant as a Wyoming handle service.

    Attributes:
        user: Name of the user on whose behalf all who connect ask.
        host: An address of this machine; others than loopback need ``allow``.
        port: 0 takes any free one.
        allow: IP addresses or networks that may connect, besides this machine.
        say_yes: Whether "yes" as the next message of a conversation confirms what an exact sentence asked.
    """

    user: Annotated[str, Field(min_length=1, max_length=64)]
    host: IpAddress = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 10_500
    allow: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    say_yes: bool = False


class HubSettings(Strict):
    """Settings of one hub process.

    Attributes:
        home: ``STRAWBERRY_HOME``.
        instance: The stable name of this process.
        is_replica: Whether it is one of several hubs of the home.
        models: As ``agent_core.models.entries.choose`` gives them.
        embeddings: The model of the search by meaning; None for the token vectors.
        gateway: How models are asked.
        home_link: The broker of others that the hub uses beside the bus, if any.
        home_assistant_access: The Home Assistant whose entities are used, if any.
        discovery: How this home appears in Home Assistant: whether each entity announces itself, which every
            version understands, or each device, which needs 2024.11. MQTT does not tell its version.
        protobuf: How payloads in protocol buffers are decoded, if any are.
        otlp_endpoint: Of an OpenTelemetry collector that gets the traces of turns, if any does.
        ca: PEM of the certificate authorities that devices pin when they join: of this home, and of its
            broker if that has another one.
        wyoming: The Wyoming handle service; None for none.
    """

    home: Path
    bus: BusSettings
    home_link: HomeLinkSettings | None = None
    home_assistant_access: HomeAssistantAccess | None = None
    protobuf: ProtobufSettings | None = None
    ca: str | None = None
    instance: InstanceName = MAIN
    is_replica: bool = False
    http: HttpSettings = HttpSettings()
    models: Models = Models()
    embeddings: Model | None = None
    gateway: GatewayKind = "tensorzero"
    turns: TurnSettings = TurnSettings()
    quotas: QuotaSettings = QuotaSettings()
    sandbox: SandboxSettings = SandboxSettings()
    captures: CaptureSettings = CaptureSettings()
    household: Household = Household()
    watchers: WatcherSettings = WatcherSettings()
    audit: AuditSettings = AuditSettings()
    metrics: MetricsSettings = MetricsSettings()
    otlp_endpoint: str | None = None
    discovery: Literal["entity", "device"] = "entity"
    notifications: NotificationSettings = NotificationSettings()
    wyoming: WyomingSettings | None = None
    database_url: SecretStr | None = None

    @property
    def directory(self) -> Path:
        return self.home / "hub"

    @property
    def database(self) -> Path | str:
        """Return where the database is; see `hub_registry.storage.store.Place`."""
        return (
            self.directory / "hub.db" if self.database_url is None else self.database_url.get_secret_value()
        )
