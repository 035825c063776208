"""Files made of the hub's operations: the commands of the CLI, and the tables of docs/http.md.

``python -m tests.generated`` writes them (``make generated``); a test compares them.
"""

import json
import re
import types
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from agent_core.skills.skill import Unit
from chat.operations import Command, Operation, Resource, Stream
from contracts.phrases import MEMBER
from deploy.cli.resources import DECLARATIONS
from hub_server.resources import RESOURCES

HTTP = Path(__file__).parents[1] / "docs" / "http.md"
_SECTION = re.compile(r"(<!-- operations: ([\w-]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def main() -> None:
    """Write them."""
    DECLARATIONS.write_text(commands(), "utf-8")
    HTTP.write_text(tables(HTTP.read_text("utf-8")), "utf-8")


def commands() -> str:
    """The declarations of the commands, as JSON."""
    groups = {
        resource.name: found
        for resource in RESOURCES
        if (found := [_command(each, each.command) for each in resource.operations if each.command])
    }
    # A command a line, so that a change shows which one it is.
    lines = (
        f"{json.dumps(name)}: [\n"
        + ",\n".join(json.dumps(each, ensure_ascii=False) for each in found)
        + "\n]"
        for name, found in groups.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def tables(document: str) -> str:
    """The documentation, with the table of each resource that it has a place for."""
    by_name = {resource.name: resource for resource in RESOURCES}
    return _SECTION.sub(lambda found: found[1] + "".join(_table(by_name[found[2]])), document)


def _command(operation: Operation[Any, Any], command: Command) -> dict[str, Any]:
    name, *positional = command.usage.split()
    places = {word.strip("[].").lower().replace("-", "_"): word for word in positional}
    body = operation.body
    fields = {} if body is None else body.model_fields
    documented = {**_documented(operation.function.__doc__), **_documented(body.__doc__ if body else "")}
    arguments = [
        _argument(name, operation.hints[name], places, documented, in_path=True) for name in operation.in_path
    ]
    for field, each in fields.items():
        kind = Annotated[each.annotation, *each.metadata] if each.metadata else each.annotation
        arguments.append(_argument(field, kind, places, documented, is_required=each.is_required()))
    arguments.sort(key=lambda each: [*places].index(each["name"]) if each["flag"] is None else len(places))
    columns = [_column(each, operation.answer) for each in command.columns or operation.resource.columns]
    model = _plain(operation.answer)
    formats = (
        {}
        if not _is_model(model)
        else {
            name: how
            for name, each in model.model_fields.items()
            if name != MEMBER and (how := _format(name, _of(each)))
        }
    )
    first, _, rest = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", _prose(operation)).partition("\n\n")
    return {
        "name": name,
        "help": (first[:1].lower() + first[1:].rstrip(".")).replace("`", ""),
        "description": rest.replace("\n", " ").replace("`", ""),
        "method": operation.method,
        "path": re.sub(r":\w+}", "}", operation.path),
        "arguments": arguments,
        "columns": columns if get_origin(operation.answer) is list else [],
        "says": command.says,
        "asks": command.asks,
        "empty": command.empty,
        "formats": formats,
    }


def _argument(
    name: str,
    kind: Any,
    places: dict[str, str],
    documented: dict[str, str],
    *,
    in_path: bool = False,
    is_required: bool = True,
) -> dict[str, Any]:
    plain, choices, is_list = _plain(kind), [], False
    if get_origin(plain) in (list, tuple):
        plain, is_list = _plain(get_args(plain)[0]), True
    if get_origin(plain) is Literal:
        plain, choices = str, [str(each) for each in get_args(plain)]
    assert plain in (str, int, float, bool), f"{name}: a command for {plain} is written by hand"
    word = places.get(name, "")
    return {
        "name": name,
        "flag": None if word else f"--{name.replace('_', '-')}",
        "kind": plain.__name__,
        "help": documented.get(name, "").replace("`", ""),
        "in_path": in_path,
        "is_required": is_required and not word.startswith("["),
        "is_list": is_list or word.endswith("..."),
        "choices": choices,
        "metavar": word.strip("[].") or name.upper().replace("_", "-"),
    }


def _column(column: str, answer: Any) -> tuple[str, str, str]:
    heading, _, field = column.partition("=")
    field = field or heading
    model = _plain(get_args(answer)[0] if get_args(answer) else answer)
    assert not _is_model(model) or field in model.model_fields, f"{model.__name__} has no {field}"
    return heading, field, _format(field, _of(model.model_fields[field])) if _is_model(model) else ""


def _of(field: Any) -> Any:
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def _format(name: str, kind: Any) -> str:
    if any(isinstance(each, Unit) and each.name == "B" for each in get_args(kind)) or name == "bytes":
        return "size"
    return "time" if _plain(kind) is datetime else ""


def _plain(kind: Any) -> Any:
    """A type without its annotations, and without None."""
    while get_origin(kind) in (Annotated, Union, types.UnionType):
        found = [each for each in get_args(kind) if each is not type(None)]
        kind = found[0]
    return kind


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _documented(doc: str | None) -> dict[str, str]:
    """The parameters that a docstring explains."""
    _, _, part = (doc or "").partition("Args:\n")
    if not part:
        _, _, part = (doc or "").partition("Attributes:\n")
    found = re.findall(r"^\s+(\w+): (.*(?:\n\s{12,}.*)*)", part.partition("\n\n")[0], re.MULTILINE)
    return {name: re.sub(r"\s+", " ", text).rstrip(".") for name, text in found}


def _prose(operation: Operation[Any, Any]) -> str:
    """The docstring of an operation without its sections."""
    lines = re.split(r"\n\s*(?:Args|Raises|Returns):\n", operation.function.__doc__ or "")[0].strip()
    return re.sub(r"\n[ ]+", "\n", lines)


def _table(resource: Resource[Any, Any]) -> Iterator[str]:
    shown: dict[str, str] = {}
    yield "| request | scope | body or query → answer |\n|---|---|---|\n"
    for each in resource.operations:
        if isinstance(each, Stream) and each.switch:
            continue  # said where the operation of the same path is
        request = f"`{each.method} {each.path.replace(':path}', '}')}`"
        said = f"`{_given(each)}`" if each.body is not None else ""
        if not each.is_raw and each.answer is not type(None):
            shape = _shape(each.answer)
            fields = shape.strip("[]")
            if fields in shown:
                shape = f"{'a list, ' if shape != fields else ''}as of {shown[fields]}"
            else:
                shown[fields], shape = request, f"`{shape}`"
            said += f" → {'server-sent events of ' if isinstance(each, Stream) else ''}{shape}"
        prose = re.sub(r"\s+", " ", _prose(each)).rstrip(".").replace("|", "\\|")
        parameters = "; ".join(
            f"`{name}`: {text}" for name, text in _documented(each.function.__doc__).items()
        )
        text = ". ".join(filter(None, (prose, parameters)))
        yield f"| {request} | {each.needs.label} | {f'{said.strip()}: {text}' if said else text} |\n"


def _given(operation: Operation[Any, Any]) -> str:
    assert operation.body is not None
    fields = operation.body.model_fields.items()
    if operation.is_in_query:
        streams = (each for each in operation.resource.operations if isinstance(each, Stream))
        switches = [each.switch for each in streams if each.switch and each.path == operation.path]
        return "?" + "&".join(f"{name}=" for name in [*(name for name, _ in fields), *switches])
    return "{" + ", ".join(f'"{name}"{"" if each.is_required() else "?"}' for name, each in fields) + "}"


def _shape(kind: Any, depth: int = 0) -> str:
    """The fields of an answer, as its JSON has them."""
    plain = _plain(kind)
    if get_origin(plain) in (list, tuple):
        inner = _shape(get_args(plain)[0], depth)
        return f"[{inner}]" if inner else "[…]"
    if not _is_model(plain):
        return "" if depth else "…"
    fields = []
    for name, each in plain.model_fields.items():
        if name == MEMBER or each.exclude:
            continue  # phrases are of any text for people: docs/http.md says it once
        inner = _shape(each.annotation, depth + 1) if depth < 1 else ""
        shown = each.serialization_alias or each.alias or name
        fields.append(f'"{shown}": {inner}' if "{" in inner else f'"{shown}"')
    return "{" + ", ".join(fields) + "}"


if __name__ == "__main__":
    main()
