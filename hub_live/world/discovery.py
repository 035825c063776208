"""Entities that announce themselves on the home broker: Home Assistant's discovery and Zigbee2MQTT's devices.

Both are read as input that anybody on that broker may have written: what does not fit is refused entity by
entity. Of Jinja templates only those that name a field are understood; of others the whole payload is shown.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from contracts.errors import InvalidMessage, InvalidTopic
from contracts.topics import check_topic
from contracts.validation import explain
from contracts.wire import Json
from hub_live import limits
from hub_live.world.thing import Thing

HOME_ASSISTANT: Final = ("homeassistant/+/+/config", "homeassistant/+/+/+/config")
ZIGBEE2MQTT: Final = "+/bridge/devices"
"""Its first level can be set; ``zigbee2mqtt`` is the default."""

MAX_CONFIG: Final = 4 * 1024 * 1024
"""Bytes of one announcement. Zigbee2MQTT lists all its devices in one, with 5 to 10 kB for each."""

_PARTS: Final = re.compile(
    r"homeassistant/([a-z0-9_]{1,32})/(?:([\w-]{1,128})/)?([\w-]{1,128})/config", re.ASCII
)
_OWN: Final = "strawberry_"
"""What nodes begin with that hubs announce: their devices are in the world already."""
_NO_ENTITIES: Final = frozenset({"device_automation", "tag"})
_PLAIN: Final = re.compile(
    r"""\{\{\s*value_json((?:\.[A-Za-z_]\w*|\[\s*(?:'[^'\]{}]+'|"[^"\]{}]+"|\d{1,4})\s*\])+)\s*\}\}""",
    re.ASCII,
)
_STEP: Final = re.compile(r"""\.(\w+)|\[\s*(?:'([^']+)'|"([^"]+)"|(\d+))""", re.ASCII)
"""No two parts match the same letters: a template of a stranger may be thousands of blanks."""

_PUBLISHED, _SET = 1, 2
"""Bits of ``access`` in Zigbee2MQTT's ``exposes``."""
_GENERIC: Final = {
    "numeric": ("sensor", "number"),
    "binary": ("binary_sensor", "switch"),
    "enum": ("sensor", "select"),
    "text": ("sensor", "text"),
}
"""Types of ``exposes`` as kinds of Home Assistant: those that only show, and those that can be set."""
_MAIN_FEATURES: Final = ("state", "position", "system_mode", "local_temperature")
"""What tells the state of a light, switch, cover, lock, fan or climate device; the first one that it has."""


def _topic(text: str) -> str:
    if len(text) > limits.MOST_DISCOVERY_TOPIC or text.startswith("$"):
        raise ValueError("is too long, or the broker's own")
    try:
        check_topic(text)
    except InvalidTopic as error:
        raise ValueError(error.message) from None
    return text


_Name = Annotated[str, Field(max_length=255)]
_Template = Annotated[str, Field(max_length=4_000)]
_Topic = Annotated[str, AfterValidator(_topic)]


class _Foreign(BaseModel):
    """A part of a message of other programs, of which only some fields are read."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, defer_build=True)


def _named(*names: str) -> Any:
    # Announcements may use a long or a short name.
    return Field(None, validation_alias=AliasChoices(*names))


class _Device(_Foreign):
    name: _Name | None = None
    suggested_area: _Name | None = _named("suggested_area", "sa")


class _Config(_Foreign):
    """The description of one entity in Home Assistant's discovery."""

    name: _Name | None = None
    device: _Device | None = _named("device", "dev")
    device_class: _Name | None = _named("device_class", "dev_cla")
    unit: Annotated[str, Field(max_length=32)] | None = _named("unit_of_measurement", "unit_of_meas")
    form: _Name | None = _named("schema")
    state_topic: _Topic | None = _named("state_topic", "stat_t")
    value_template: _Template | None = _named(
        "value_template", "val_tpl", "state_value_template", "stat_val_tpl"
    )
    payload_on: Any = _named("payload_on", "pl_on")
    payload_off: Any = _named("payload_off", "pl_off")
    temperature_topic: _Topic | None = _named("current_temperature_topic", "curr_temp_t")
    temperature_template: _Template | None = _named("current_temperature_template", "curr_temp_tpl")
    position_topic: _Topic | None = _named("position_topic", "pos_t")
    position_template: _Template | None = _named("position_template", "pos_tpl")

    @property
    def state(self) -> tuple[str | None, str | None]:
        """Topic and field of the state."""
        if self.state_topic is not None and self.form == "json":
            return self.state_topic, "state"
        pairs = (
            (self.state_topic, self.value_template),
            (self.position_topic, self.position_template),
            (self.temperature_topic, self.temperature_template),
        )
        return next(((topic, plain_field(text)) for topic, text in pairs if topic is not None), (None, None))


def plain_field(template: str | None) -> str | None:
    """Return the field that a template names, as ``state.temperature``; None for any other template."""
    plain = _PLAIN.fullmatch(template.strip()) if template else None
    if plain is None:
        return None
    return ".".join("".join(step) for step in _STEP.findall(plain[1]))


def discovered(topic: str, config: Json) -> Iterator[Thing | InvalidMessage]:
    """Read a message of Home Assistant's discovery, of one entity or of a device with several.

    Yields:
        An entity, or why it is refused.
    """
    parts = _PARTS.fullmatch(topic)
    if parts is None:
        yield InvalidMessage("the topic has names that Home Assistant does not allow")
        return
    if not isinstance(config, dict):
        yield InvalidMessage("the payload is not a JSON object")
        return
    component, node, name = parts.groups()
    if (node or name).startswith(_OWN):
        return
    if component != "device":
        if component not in _NO_ENTITIES:
            yield _entity(component, f"{node}_{name}" if node else name, config)
        return
    components = config.get("components", config.get("cmps"))
    if not isinstance(components, dict):
        yield InvalidMessage("components must be an object")
        return
    shared = {key: value for key, value in config.items() if key not in ("components", "cmps", "name")}
    for key, each in components.items():
        if not isinstance(each, dict):
            yield InvalidMessage("component {key!r} is not an object", key=key[:100])
            continue
        platform = each.get("platform", each.get("p"))
        if not isinstance(platform, str) or not re.fullmatch(r"[a-z0-9_]{1,32}", platform):
            yield InvalidMessage("component {key!r} has no platform", key=key[:100])
        # Without anything else it is a component that was removed.
        elif len(each) > 1 and platform not in _NO_ENTITIES:
            yield _entity(platform, f"{name}_{key}"[:256], {**shared, **each})


def _entity(kind: str, object_id: str, given: Mapping[str, Json]) -> Thing | InvalidMessage:
    try:
        config = _Config.model_validate(_expanded(given))
    except ValidationError as error:
        return InvalidMessage(explain(error, what="field"))
    device, area = (config.device.name, config.device.suggested_area) if config.device else (None, None)
    name = config.name or (config.device_class or "" if device else object_id)
    prefix = device if device and not name.startswith(device) else ""
    topic, field = config.state
    return Thing(
        kind=kind,
        id=f"{kind}.{object_id}",
        name=f"{prefix} {name}".strip(),
        area=area or None,
        device=device or None,
        topic=topic,
        link="home" if topic is not None else None,
        field=field,
        unit=config.unit,
        device_class=config.device_class,
        on_off=_on_off(kind, config.payload_on, config.payload_off),
    )


def _expanded(config: Mapping[str, Json]) -> dict[str, Json]:
    """Put the base topic in where ``~`` stands for it."""
    base = config.get("~")
    made = dict(config)
    if isinstance(base, str) and len(base) <= limits.MOST_DISCOVERY_TOPIC:
        for key, value in config.items():
            if isinstance(value, str) and key.endswith(("_topic", "_t")):
                made[key] = re.sub(r"\A~|~\Z", lambda _: base, value)
    return made


class _Expose(_Foreign):
    type: _Name
    name: _Name = ""
    label: _Name = ""
    property: _Name = ""
    unit: Annotated[str, Field(max_length=32)] | None = None
    access: int = 0
    endpoint: _Name = ""
    features: Annotated[list[Any], Field(max_length=100)] = []
    value_on: Any = None
    value_off: Any = None


class _Definition(_Foreign):
    exposes: list[Any] = []


class _ZigbeeDevice(_Foreign):
    friendly_name: Annotated[str, Field(min_length=1, max_length=255)]
    disabled: bool = False
    definition: _Definition | None = None


def zigbee_devices(topic: str, devices: Json) -> Iterator[Thing | InvalidMessage]:
    """Read Zigbee2MQTT's list of devices, with what each exposes.

    Yields:
        An entity, or why a device or entity is refused.
    """
    base = topic.partition("/")[0]
    if not isinstance(devices, list):
        yield InvalidMessage("the payload is not a JSON array")
        return
    for given in devices:
        try:
            device = _ZigbeeDevice.model_validate(given)
            state_topic = _topic(f"{base}/{device.friendly_name}")
        except ValidationError as error:
            yield InvalidMessage(explain(error, what="field"))
            continue
        except ValueError as error:
            yield InvalidMessage("friendly_name {error}", error=error)
            continue
        if device.disabled or device.definition is None:
            continue  # The coordinator has no definition.
        for exposed in device.definition.exposes:
            try:
                yield from _exposed(_Expose.model_validate(exposed), device.friendly_name, state_topic)
            except ValidationError as error:
                yield InvalidMessage(
                    "{friendly_name!r}: {explain}",
                    friendly_name=device.friendly_name[:100],
                    explain=explain(error, what="field"),
                )


def _exposed(exposed: _Expose, device: str, topic: str) -> Iterator[Thing]:
    kinds = _GENERIC.get(exposed.type)
    if kinds is not None:
        if exposed.access & _PUBLISHED and exposed.property:
            kind = kinds[1] if exposed.access & _SET else kinds[0]
            sets: tuple[str, ...] = (exposed.property,) if exposed.access & _SET else ()
            yield _zigbee_entity(
                kind, exposed, device, topic, f"{device} {exposed.label or exposed.name}", sets
            )
        return
    if not re.fullmatch(r"[a-z_]{1,32}", exposed.type) or exposed.type in ("composite", "list"):
        return
    features = {each.name: each for each in map(_Expose.model_validate, exposed.features)}
    main = next((features[name] for name in _MAIN_FEATURES if name in features), None)
    if main is not None and main.property:
        name = f"{device} {exposed.endpoint}" if exposed.endpoint else device
        sets = tuple(each.property for each in features.values() if each.access & _SET and each.property)
        yield _zigbee_entity(exposed.type, main, device, topic, name, sets)


def _zigbee_entity(
    kind: str, exposed: _Expose, device: str, topic: str, name: str, sets: tuple[str, ...]
) -> Thing:
    return Thing(
        kind=kind,
        id=f"{kind}.{device}/{exposed.property}",
        name=name.strip(),
        device=device,
        topic=topic,
        link="home",
        field=exposed.property,
        unit=exposed.unit,
        # As Zigbee2MQTT itself announces it to Home Assistant.
        device_class="door" if (kind, exposed.property) == ("binary_sensor", "contact") else None,
        sets=sets,
        on_off=_on_off(kind, exposed.value_on, exposed.value_off),
    )


def _on_off(kind: str, on: Json, off: Json) -> tuple[str, ...]:
    """Return the values of a binary sensor, with Home Assistant's default where one is not given."""
    given = (("ON", on), ("OFF", off)) if kind == "binary_sensor" else ()
    return tuple(
        str(default if value is None else value)[: limits.MOST_DISCOVERY_STATE] for default, value in given
    )
