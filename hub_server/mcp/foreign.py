"""Tools of foreign MCP servers as methods of a skill: all that a server says of itself is input."""

import json
import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent_core.schemas.class_text import Classes, class_name, typed
from agent_core.schemas.foreign_schema import check_schema
from agent_core.search.directory import RegisteredSkill
from agent_core.search.targets import strictest
from agent_core.skills.results import MAX_RESULT_BYTES
from contracts.devices.registration import Method, MethodFlags, Registration
from contracts.errors import CallError, ErrorCode, InvalidMessage
from contracts.wire import Json
from hub_server import limits
from hub_server.mcp.file import Annotations


@dataclass(frozen=True)
class ForeignMethod:
    """A tool as a method.

    Attributes:
        tool: Its name at the server.
        names: Those of its arguments there, by parameter.
    """

    method: Method
    tool: str
    names: Mapping[str, str]

    def arguments(self, given: Mapping[str, Json]) -> dict[str, Json]:
        return {self.names[name]: value for name, value in given.items()}


def skill_name(server: str) -> str:
    """Make the name of the class: ``home-search`` becomes ``HomeSearchSkill``."""
    words = re.findall(r"[A-Za-z0-9]+", server)
    name = "".join(word[0].upper() + word[1:] for word in words).removesuffix("Skill")
    return f"{name if name[:1].isalpha() else f'Mcp{name}'}"[:59] + "Skill"


def foreign_methods(
    tools: Iterable[Any], approved: Mapping[str, Annotations]
) -> tuple[dict[str, ForeignMethod], list[str]]:
    """Make methods of tools; return them by name, and what is to be known of the others.

    Args:
        tools: As ``mcp_types.Tool``.
        approved: What the owner approves by the name of a tool, ``*`` for any other; what else a server says
            of its tools counts only where it is stricter.
    """
    made: dict[str, ForeignMethod] = {}
    problems: list[str] = []
    unapproved: list[str] = []
    for number, tool in enumerate(tools):
        if number == limits.MAX_TOOLS:
            problems.append(f"it has more than {limits.MAX_TOOLS} tools")
            break
        shown = repr(str(tool.name)[:60])
        name = _identifier(str(tool.name))
        if name in made:
            problems.append(f"{shown} would be called {name}, as another tool")
            continue
        try:
            each = _method(name, tool)
            RegisteredSkill.of(_registration("CheckSkill", "", [each.method]), "")
        except (ValueError, InvalidMessage) as error:
            problems.append(f"{shown}: {str(error)[:200]}")
            continue
        said = each.method.flags
        flags = strictest([said, _flags(approved.get(each.tool, approved.get("*")))])
        if flags != said:
            unapproved.append(each.tool[:60])
        made[name] = replace(each, method=each.method.model_copy(update={"flags": flags}))
    if unapproved:
        some = ", ".join(unapproved[:5]) + (", …" if len(unapproved) > 5 else "")
        problems.append(f'the hints of {some} need "annotations" in mcp.json')
    return made, problems


def registered(skill: str, doc: str, methods: Iterable[ForeignMethod]) -> RegisteredSkill:
    """Return what the directory offers."""
    registration = _registration(skill, doc[: limits.MAX_TOOL_DOC], [each.method for each in methods])
    return RegisteredSkill.of(registration, "")


def value_of(result: Any) -> Json:
    """Return the result of a tool: its structured content, or else its text.

    Raises:
        CallError: If the tool failed, or its result is too large.
    """
    texts = [_text(block) for block in result.content]
    if result.is_error:
        raise CallError(ErrorCode.SKILL_ERROR, "\n".join(texts)[: limits.MAX_TOOL_ERROR] or "the tool failed")
    value: Json = "\n".join(texts) if result.structured_content is None else result.structured_content
    if isinstance(value, dict) and value.keys() == {"result"}:
        value = value["result"]  # how the official library wraps what is no object
    if len(json.dumps(value)) > MAX_RESULT_BYTES:
        raise CallError(ErrorCode.TOO_LARGE, f"the result has more than {MAX_RESULT_BYTES:,} bytes")
    return value


def _registration(skill: str, doc: str, methods: list[Method]) -> Registration:
    return Registration(v=1, skill=skill, doc=doc, methods=methods)


def _method(name: str, tool: Any) -> ForeignMethod:
    schema: dict[str, Any] = dict(tool.input_schema)
    if len(json.dumps(schema)) > limits.MAX_TOOL_SCHEMA:
        raise ValueError(f"its schema has more than {limits.MAX_TOOL_SCHEMA:,} characters")
    properties = schema.get("properties") or {}
    if schema.get("type", "object") != "object" or not isinstance(properties, dict):
        raise ValueError("its schema is not one of an object")
    names = {_identifier(each): each for each in properties}
    if len(names) < len(properties):
        raise ValueError("two of its parameters have the same name")
    called = {given: own for own, given in names.items()}
    listed = schema.get("required") or []
    required = [called[each] for each in listed if each in called] if isinstance(listed, list) else []
    parameters = {
        **{key: value for key, value in schema.items() if key == "$defs"},
        "type": "object",
        "properties": {own: properties[given] for own, given in names.items()},
        "required": required,
        "additionalProperties": False,
    }
    check_schema(parameters)
    # What must be given comes first, as Python has it.
    order = sorted(names, key=lambda each: each not in required)
    classes = Classes(schema.get("$defs"))
    words = [_parameter(each, properties[names[each]], classes, each in required) for each in order]
    result = _result(tool.output_schema)
    returns = f" -> {Classes(result.get('$defs')).type_of(result, 'Result')}" if result else ""
    method = Method(
        name=name,
        signature=f"{name}({', '.join(words)}){returns}"[:2_000],
        doc=(tool.description or tool.title or "")[: limits.MAX_TOOL_DOC],
        parameters=parameters,
        positional=required[:1],
        result=result,
        flags=_flags(tool.annotations),
        timeout_ms=limits.TOOL_TIMEOUT_MS,
    )
    return ForeignMethod(method, str(tool.name), names)


def _flags(hints: Any) -> MethodFlags:
    """Read the annotations; where one is missing, the stricter holds."""
    read_only = hints is not None and hints.read_only_hint is True
    return MethodFlags(
        read_only=read_only,
        idempotent=read_only or (hints is not None and hints.idempotent_hint is True),
        destructive=not read_only and not (hints is not None and hints.destructive_hint is False),
        open_world=not (hints is not None and hints.open_world_hint is False),
        untrusted_output=True,
    )


def _identifier(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", text).strip("_")[:60]
    if not name[:1].isalpha():
        name = f"tool_{name}".rstrip("_")
    return f"{name}_" if keyword.iskeyword(name) else name


def _parameter(name: str, schema: Any, classes: Classes, required: bool) -> str:
    text = f"{name}: {classes.type_of(schema, class_name(name))}"
    if required:
        return text
    return (
        f"{text} = {typed(schema['default']) if isinstance(schema, dict) and 'default' in schema else '...'}"
    )


def _result(declared: Any) -> dict[str, Json] | None:
    """Return the schema of what a call returns, see `value_of`; None where there is no usable one."""
    if not isinstance(declared, dict) or len(json.dumps(declared)) > limits.MAX_TOOL_SCHEMA:
        return None
    properties = declared.get("properties")
    if isinstance(properties, dict) and properties.keys() == {"result"}:
        wrapped = properties["result"]
        shared = {"$defs": declared["$defs"]} if "$defs" in declared else {}
        declared = {**wrapped, **shared} if isinstance(wrapped, dict) else {}
    try:
        check_schema(declared)
    except ValueError:
        return None
    return declared or None


def _text(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "resource" if hasattr(block.resource, "text"):
            return str(block.resource.text)
        case "resource_link":
            return str(block.uri)
    return f"[{block.type}]"
