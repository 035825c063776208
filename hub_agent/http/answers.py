"""What endpoints answer, as JSON Schema: read off their code, so that a document cannot say anything else.

An endpoint ends with ``return answer(X)``. Of X is known what it says of itself: a model, a function with
the type that it returns, an object or a list that is written out. The rest is any JSON.
"""

import ast
import inspect
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pydantic import PydanticUserError, TypeAdapter

from contracts.wire import Json

Models = Callable[[Any], Json]
"""Gives the schema of a type, or a reference to it."""

_ANSWERS: Final = ("answer", "JSONResponse")
_ANSWERS_EACH: Final = "answer_each"
_ERRORS: Final = ("farewell", "error_response", "_failed")
"""What else is returned in place of an answer, with a status that says so."""


def answer_schema(endpoint: Callable[..., Any], models: Models) -> Json | None:
    """Return the schema of an endpoint's answers; None where they are not JSON or nothing is known."""
    function = inspect.unwrap(getattr(endpoint, "__func__", endpoint))
    if not inspect.isfunction(function):
        return None
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return None  # a program without its source
    # Not `inspect.getclosurevars`, which leaves out what a comprehension uses.
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    known = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}
    if (owner := getattr(endpoint, "__self__", None)) is not None:
        known["self"] = owner
    found: list[Json] = []
    for value in _returned(tree.body[0]):
        call = _awaited(value)
        name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        if name in _ERRORS:
            continue
        if not isinstance(call, ast.Call) or name not in (*_ANSWERS, _ANSWERS_EACH):
            return None
        if (schema := _schema(call.args[0], known, models)) not in found:
            found.append(schema)
    if not found:
        return None
    return found[0] if len(found) == 1 else {"anyOf": found}


def _returned(function: ast.AST) -> Iterator[ast.expr]:
    """Iterate over what a function returns, without those within it."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _returned(node)


def _awaited(value: ast.expr) -> ast.expr:
    return value.value if isinstance(value, ast.Await) else value


def _schema(value: ast.expr, known: Mapping[str, Any], models: Models) -> Json:
    value = _awaited(value)
    match value:
        case ast.ListComp() | ast.GeneratorExp():
            return {"type": "array", "items": _schema(value.elt, known, models)}
        case ast.Dict():
            pairs = zip(value.keys, value.values, strict=True)
            properties = {
                key.value: _schema(each, known, models)
                for key, each in pairs
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
            is_whole = len(properties) == len(value.keys)
            whole: dict[str, Json] = {"additionalProperties": False} if is_whole else {}
            return {"type": "object", "properties": properties, "required": [*properties], **whole}
        case ast.Call(func=ast.Attribute(attr="to_thread"), args=[work, *_]):
            return _of_type(_returns(_found(work, known)), models)
        case ast.Call():
            return _of_type(_returns(_found(value.func, known)), models)
    return {}


def _found(expression: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return what a name, perhaps with dots, stands for; None where that is only known when it runs."""
    match expression:
        case ast.Name(id=name):
            return known.get(name)
        case ast.Attribute(value=owner, attr=name) if (of := _found(owner, known)) is not None:
            given = vars(of).get(name) if not isinstance(of, type) and hasattr(of, "__dict__") else None
            return given if given is not None else inspect.getattr_static(of, name, None)
    return None


def _returns(function: Any) -> Any:
    if isinstance(function, type):
        return function
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        return None
    try:
        return typing.get_type_hints(function).get("return")
    except NameError:
        return None  # a type that is imported for the type checker alone


def _of_type(kind: Any, models: Models) -> Json:
    if kind in (None, Any):
        return {}
    try:
        TypeAdapter(kind)
    except PydanticUserError:
        return {}  # an object of ours that is no data
    return models(kind)
