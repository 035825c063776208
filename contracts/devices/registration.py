"""What a spoke tells about a skill: ``devices/{device}/skills/{Skill}``."""

import json
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from contracts import limits
from contracts.names import MethodName, SkillName, Token
from contracts.phrases import Phrase
from contracts.text import escaped
from contracts.wire import Json, Part, Wire, shown_digest

MAX_METHODS: int = 256
"""Methods one skill may register; a class with more is a generated one and belongs split."""

MAX_SCHEMA: int = 64 * 1024
"""Characters of one JSON Schema; an enum of a thousand names has half as many."""

Language = Annotated[str, Field(max_length=35)]
"""A language tag (BCP 47); the RFC asks for room for 35 characters."""


Label = Annotated[
    str,
    Field(
        min_length=1,
        max_length=limits.MAX_LABEL,
        pattern="^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+$",
    ),
]
"""A name for people on one line, whose letters stand in the order in which they are written."""

Use = Annotated[str, Field(pattern=r"^(\*|[a-z0-9_]{1,64})(\.[A-Za-z0-9_-]{1,64}){2}$")]
"""A method of a device by its key."""

Component = Literal[
    "binary_sensor",
    "button",
    "climate",
    "cover",
    "event",
    "fan",
    "light",
    "lock",
    "none",
    "number",
    "select",
    "sensor",
    "switch",
]
"""What Home Assistant may show a member of a skill as."""


class MethodFlags(Part):
    """What a method may do, declared by its author. The defaults assume the least.

    Attributes:
        unknown: Whether its author declared nothing, as a spoke says that does not know this flag, too.
    """

    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False
    open_world: bool = False
    confirm: bool = False
    untrusted_output: bool = False
    unknown: bool = True

    @model_validator(mode="before")
    @classmethod
    def _declared(cls, given: Any) -> Any:
        return {"unknown": False, **given} if isinstance(given, dict) and any(given.values()) else given


class Method(Part):
    """One method of a skill.

    Attributes:
        signature: As Python writes it, without ``self``: ``set_volume(level: int = 30) -> None``.
        doc: The docstring, dedented; its first line is the summary.
        parameters: JSON Schema (2020-12) of an object; ``properties`` stand in the order of the
            signature, ``additionalProperties`` is false.
        positional: Names that may also be given by position, in order.
        result: JSON Schema of the result, or None where the author declared none.
        timeout_ms: How long the method may run.
        progress: Whether it is a generator that reports progress.
        sentences: Sentence templates (hassil) by language (BCP 47).
        responses: Templates of the answer to a sentence by language; see `agent_core.sentences.responses`.
    """

    name: MethodName
    signature: Annotated[str, Field(max_length=2_000)]
    doc: Annotated[str, Field(max_length=8_000)] = ""
    parameters: dict[str, Json]
    positional: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=200)] = []
    result: dict[str, Json] | None = None
    flags: MethodFlags = MethodFlags()
    timeout_ms: Annotated[int, Field(gt=0, le=900_000)] = 30_000
    progress: bool = False
    # What is too long for a sentence costs the sentence, and only what no author writes the whole skill.
    sentences: Annotated[
        dict[Language, Annotated[list[Annotated[str, Field(max_length=4_000)]], Field(max_length=200)]],
        Field(max_length=50),
    ] = {}
    responses: Annotated[dict[Language, Annotated[str, Field(max_length=500)]], Field(max_length=50)] = {}

    @cached_property
    def parameters_json(self) -> str:
        # Compiled schemas are cached by this text.
        return json.dumps(self.parameters, sort_keys=True)

    @cached_property
    def result_json(self) -> str:
        return json.dumps(self.result, sort_keys=True)

    @property
    def digest(self) -> str:
        return shown_digest([self.name, list(self.parameters.get("properties", ())), self.flags.model_dump()])

    @property
    def summary(self) -> str:
        return self.doc.strip().partition("\n")[0]


class Appearance(Part):
    """What a member of a skill is in Home Assistant; where it is None, the hub's rules decide.

    Attributes:
        component: ``none`` for nothing at all.
        icon: A name of Material Design Icons: ``mdi:play``.
        state: The property that shows the present value.
        on: The method that switches on, opens a cover or locks, without arguments; ``off`` the other way.
        stop: The method that stops a cover.
        set: The method that sets the value, which is its one argument: the position of a cover, the target of
            a thermostat.
        brightness: Of a light, the property that shows it; ``set_brightness`` is the method that sets it.
        color: Of a light, as ``#rrggbb``; ``set_color`` likewise.
        speed: Of a fan; ``set_speed`` likewise.
        mode: Of a thermostat; ``set_mode`` likewise.
        current: Of a thermostat, the property that shows what it measures.
        least: The range of a number, or up to ``most`` the scale of a brightness or speed.
        options: Of a select, or the modes of a thermostat.
    """

    component: Component | None = None
    name: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    icon: Annotated[str, Field(pattern=r"^mdi:[a-z0-9-]{1,64}$")] | None = None
    device_class: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")] | None = None
    unit: Annotated[str, Field(min_length=1, max_length=20)] | None = None
    state: Token | None = None
    on: MethodName | None = None
    off: MethodName | None = None
    stop: MethodName | None = None
    set: MethodName | None = None
    brightness: Token | None = None
    set_brightness: MethodName | None = None
    color: Token | None = None
    set_color: MethodName | None = None
    speed: Token | None = None
    set_speed: MethodName | None = None
    mode: Token | None = None
    set_mode: MethodName | None = None
    current: Token | None = None
    least: Annotated[float, Field(allow_inf_nan=False)] | None = None
    most: Annotated[float, Field(allow_inf_nan=False)] | None = None
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    options: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=100)] | None
    ) = None


UnavailableKind = Literal[
    "load", "setup", "task", "blocked", "settings", "packages", "process", "saved", "part"
]
"""``process``: its own process ended, or was ended for what it took. ``saved``: it can be used, but not as it
was saved last. ``part``: some of its methods are left out."""

_UNAVAILABLE: Final[dict[UnavailableKind, str]] = {
    "load": "it did not load: {reason}",
    "setup": "its set-up failed: {reason}",
    "task": "its background task failed: {reason}",
    "blocked": "it does not answer: {reason}",
    "settings": "a setting is missing: {reason}",
    "packages": "a package is missing: {reason}",
    "process": "its process ended: {reason}",
    "saved": "the saved version does not load, and the one before it runs: {reason}",
    "part": "a part of it is left out: {reason}",
}


class Unavailable(Part):
    """Why a skill cannot be used now.

    Attributes:
        reason: What failed, in one line without paths and secrets; a device that is not trusted may write
            anything.
    """

    kind: UnavailableKind
    reason: Annotated[str, Field(max_length=limits.MAX_UNAVAILABLE_REASON)] = ""

    @property
    def is_callable(self) -> bool:
        return self.kind in ("task", "saved", "part")

    @property
    def text(self) -> Phrase:
        template = _UNAVAILABLE[self.kind]
        if not self.reason:
            return Phrase(template.removesuffix(": {reason}"))
        return Phrase(template, reason=escaped(self.reason))


class Registration(Wire):
    """One skill of one device, retained and signed.

    Attributes:
        doc: The docstring of the class.
        uses: What it calls on other devices: ``kitchen.LampSkill.turn_on``, ``*`` for any device.
        unavailable: Why it cannot be used now; a skill that did not load has no methods.
        device_agnostic: Whether any device that has the skill serves as well as another.
        area: Where the skill acts, if that is not where the device stands.
        thing: What it is to everyday sentences, as ``light``; None where the rule decides.
        labels: By language, what people call the skill, its methods, arguments, states and values;
            ``method.argument`` is the argument of one method.
        homeassistant: By method or property, what it is in Home Assistant, where the owner exposes it.
    """

    kind: Literal["skill"] = "skill"
    skill: SkillName
    doc: Annotated[str, Field(max_length=8_000)] = ""
    uses: Annotated[list[Use], Field(max_length=limits.MOST_USES)] = []
    unavailable: Unavailable | None = None
    device_agnostic: bool = False
    area: Annotated[str, Field(max_length=200)] | None = None
    thing: Annotated[str, Field(pattern=r"^[a-z_]{1,32}$")] | None = None
    methods: Annotated[list[Method], Field(max_length=MAX_METHODS)]
    labels: Annotated[
        dict[
            Language,
            Annotated[
                dict[Annotated[str, Field(max_length=limits.MAX_LABELLED)], Label],
                Field(max_length=limits.MOST_LABELS),
            ],
        ],
        Field(max_length=limits.MOST_LABEL_LANGUAGES),
    ] = {}
    homeassistant: Annotated[dict[Token, Appearance], Field(max_length=MAX_METHODS)] = {}
