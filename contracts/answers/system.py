"""Answers about the hub itself: its links, models, agents, prompt, MCP servers and Home Assistant."""

from typing import Annotated, Literal

from pydantic import Field

from contracts.wire import OrAbsent, Part, Phrased, PhraseText, Strict, Timestamp


class LinkHealth(Phrased):
    """Whether a link is connected, its MQTT version, and its last error while it is not."""

    connected: bool
    mqtt: str | None
    error: OrAbsent[PhraseText] = None


Discovery = Literal["entity", "device"]
"""One announcement for each entity, or one for each device (Home Assistant 2024.11 and newer)."""


class ExposedItem(Part):
    """Something that can be shown to Home Assistant, and whether it is."""

    path: str
    name: str
    kind: str
    shown: bool


class ExposedEntity(ExposedItem):
    """An entity of a skill; ``only_by_name`` where it is shown only if a decision names it."""

    only_by_name: bool


class ExposedSkill(ExposedItem):
    """A skill with its entities."""

    entities: list[ExposedEntity]


class ExposedDevice(ExposedItem):
    """A device with its skills."""

    skills: list[ExposedSkill]


class ShownDecision(Part):
    """A decision of a person; see `ExposureRow`."""

    path: str
    shown: bool
    user: str
    at: Timestamp


class HomeBroker(LinkHealth):
    """The home's broker, whether it is connected, and as which user, empty for none."""

    url: str
    username: str


class OutwardState(Part):
    """What is shown to Home Assistant; ``home_assistant`` is what that last said of itself.

    Attributes:
        address: Of the one whose entities are used.
    """

    broker: HomeBroker | None
    address: str | None
    home_assistant: str
    discovery: Discovery
    published: int
    decisions: list[ShownDecision]
    devices: list[ExposedDevice]
    hub: list[ExposedItem]


class AgentProblem(Phrased):
    """What is wrong with a profile, and in which line."""

    message: PhraseText
    hint: PhraseText
    line: int | None


class AgentSummary(Part):
    """An agent as programs read it; paths are for admins, and the rest needs that there was a good file."""

    name: str
    file: OrAbsent[str] = None
    description: OrAbsent[str] = None
    models: OrAbsent[list[str]] = None
    tools: OrAbsent[list[str]] = None
    sentences: OrAbsent[bool] = None
    allow: OrAbsent[list[str]] = None
    read_only: OrAbsent[bool] = None
    data_dir: OrAbsent[str] = None
    problems: list[AgentProblem]


class PromptTool(Part):
    """A tool of a prompt, and the tokens that it takes."""

    name: str
    tokens: int


class PromptSection(PromptTool):
    """A section of a prompt, likewise."""

    text: str


class PromptTokens(Part):
    """The tokens of what stays the same in each turn, and of what changes."""

    stable: int
    changing: int


class ShownPrompt(Part):
    """The prompt as a model would get it."""

    agent: str
    stable: list[PromptSection]
    tools: list[PromptTool]
    changing: list[PromptSection]
    tokens: PromptTokens
    problems: list[str]


class ClusterMember(Part):
    """A hub that serves this home beside others, or a node of its bus.

    Attributes:
        term: Of the latest lead of a replica, 0 before the first.
        leads_since: None where another one leads.
        seen_s: Seconds since a replica last said that it is there.
        bus: Whether a replica was connected to the broker then, or a node has caught up with the others.
        clients: Connections to a node.
        bytes: What a node stores.
    """

    kind: Literal["replica", "node"]
    name: str
    state: Literal["leads", "serves", "gone"]
    bus: bool
    url: str
    version: str
    term: int | None = None
    leads_since: Timestamp | None = None
    seen_s: float | None = None
    started_at: Timestamp | None = None
    clients: int | None = None
    bytes: int | None = None


class McpServerState(Part):
    """A server as ``strawberry mcp list`` shows it."""

    name: str
    skill: str
    state: str
    methods: int
    detail: str


class McpServers(Part):
    """All servers, and what is wrong with the file."""

    servers: list[McpServerState]
    problem: str


class HomeAssistantTrial(Part):
    """What a Home Assistant answered to a token.

    Attributes:
        exposed: How many of the entities are exposed to Assist.
    """

    version: str
    entities: int
    exposed: int


class HomeAssistantRules(Strict):
    """What of a Home Assistant is used, and what is changed only after a person has confirmed it.

    Attributes:
        confirm: Patterns of entity ids, as ``switch.heater_*``, that are never changed without a question.
        hide: Patterns of entity ids that do not exist here.
        expose: Whether the others are those that Home Assistant exposes to Assist, or all.
        unasked: How many entities one call, or one turn, may change without a person's confirmation.
    """

    confirm: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    expose: Literal["assist", "all"] = "assist"
    unasked: Annotated[int, Field(ge=0)] = 5


class FoundHomeAssistant(Part):
    """A Home Assistant that announces itself in the local network. Nothing of it is verified."""

    name: str
    url: str
    version: str
