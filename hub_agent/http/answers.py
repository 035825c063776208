"""What endpoints answer, as JSON Schema: read off their code, so that a document cannot say anything else.

An endpoint ends with ``return answer(X)``, or with what another function makes that does. Of X is known what
it says of itself: a model, a function with the type that it returns, an object or a list that is written out,
there or in the function that returns it. What is not known is any JSON.
"""

import ast
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import BaseModel, PydanticUserError, TypeAdapter
from starlette.responses import Response

from contracts.wire import Json
from hub_agent.http.code import (
    Scope,
    attribute_of,
    awaited,
    classes_of,
    hint_of,
    hints_of,
    is_empty,
    is_vague,
    item_in,
    item_of,
    kind_of,
    parts_of,
    returned,
    returned_by,
    scope_of,
    tree_of,
    union_of,
    without_none,
)

Models = Callable[[Any], Json]
"""Gives the schema of a type, or a reference to it."""

_JSON: Final = "application/json"
_ANSWERS: Final = ("answer", "answer_each", "answer_joined", "JSONResponse")
_ERRORS: Final = ("farewell", "error_response", "_failed", "_asks")
"""What else is returned in place of an answer, with a status that says so."""
_MEDIA_TYPES: Final = {
    "download": "application/octet-stream",
    "EventStream": "text/event-stream",
    "PlainTextResponse": "text/plain",
}
_DEEPEST: Final = 8
"""Functions that call each other and are read."""
_EMPTY: Final[Json] = {"type": "array", "maxItems": 0}
_DUMPED: Final = frozenset({"mode", "include", "exclude", "exclude_none"})
_CASTS: Final = {
    "str": str,
    "bool": bool,
    "int": int,
    "len": int,
    "round": int,
    "monotonic_ns": int,
    **dict.fromkeys(("dumps", "hex", "join", "python_version", "removeprefix"), str),
}
"""What functions without a declared type return."""
_LISTS: Final = ("list", "sorted", "tuple")
_SIMPLE: Final = {str: "string", bool: "boolean", int: "integer", float: "number"}
_UNKNOWN: Final = (None, Any, object, Json, Response)


def answer_content(endpoint: Callable[..., Any], models: Models) -> dict[str, Json] | None:
    """Return the schemas of an endpoint's answers by media type, without any if they have no body.

    Returns:
        None where nothing is known.
    """
    owner = getattr(endpoint, "__self__", None)
    function = inspect.unwrap(getattr(endpoint, "__func__", endpoint))
    reader = _Reader(models)
    found = list(reader.responses(function, scope_of(function, owner, type(owner), {}, 0)))
    if not found or None in found:
        return None
    content: dict[str, list[Json]] = {}
    for media_type, schema in filter(None, found):
        content.setdefault(media_type, []).append(schema)
    return {media_type: _any_of(schemas) for media_type, schemas in content.items() if media_type}


class _Reader:
    """Reads types off expressions, which is only a description: no code runs."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def responses(self, function: Any, scope: Scope) -> Iterator[tuple[str, Json] | None]:
        """Yield media type and schema of each response of a function; None where it is not known."""
        if scope.depth > _DEEPEST or (tree := tree_of(function)) is None:
            yield None
            return
        for value in returned(tree):
            yield from self._response(value, scope)

    def _response(self, value: ast.expr, scope: Scope) -> Iterator[tuple[str, Json] | None]:
        call = awaited(value)
        if isinstance(call, ast.Name) and call.id in scope.assigned:
            for each in scope.assigned[call.id]:
                yield from self._response(each, scope)
            return
        if not isinstance(call, ast.Call):
            yield None
            return
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name in _ERRORS:
            return
        if name in _ANSWERS:
            yield _JSON, self.schema(call.args[0], scope)
        elif name == "Response":
            yield "", {}
        elif name in _MEDIA_TYPES:
            given = next((each.value for each in call.keywords if each.arg == "media_type"), None)
            media_type = str(given.value) if isinstance(given, ast.Constant) else _MEDIA_TYPES[name]
            yield media_type, {"type": "string"}
        elif (callee := self._callee(call.func, scope)) is None:
            yield None
        elif hint_of(callee[0]) in (Response, "Response"):
            yield from self.responses(callee[0], self._entered(call, callee, scope))
        elif isinstance(made := hint_of(callee[0]), type) and made.__name__ in _MEDIA_TYPES:
            yield _MEDIA_TYPES[made.__name__], {"type": "string"}
        else:
            yield None

    def schema(self, value: ast.expr, scope: Scope) -> Json:
        """Return the schema of the JSON that an expression becomes."""
        value = awaited(value)
        match value:
            case ast.Constant(value=None):
                return {"type": "null"}
            case ast.Constant(value=constant) if type(constant) in _SIMPLE:
                return {"type": _SIMPLE[type(constant)]}
            case ast.JoinedStr():
                return {"type": "string"}
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return {"type": "boolean"}
            case ast.BoolOp(values=parts):
                return _any_of(self.schema(each, scope) for each in parts)
            case ast.IfExp(body=body, orelse=other):
                return _any_of((self.schema(body, scope), self.schema(other, scope)))
            case ast.ListComp(
                elt=ast.Name(id=name), generators=[ast.comprehension(ast.Name(id=each), items)]
            ) if name == each:
                return {"type": "array", "items": self._items(items, scope)}
            case ast.ListComp() | ast.GeneratorExp():
                return {
                    "type": "array",
                    "items": self.schema(value.elt, self._within(value.generators, scope)),
                }
            case ast.DictComp():
                inner = self._within(value.generators, scope)
                return {"type": "object", "additionalProperties": self.schema(value.value, inner)}
            case ast.List() if is_empty(value):
                return dict(_EMPTY)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                found = [
                    self._items(each.value, scope)
                    if isinstance(each, ast.Starred)
                    else self.schema(each, scope)
                    for each in items
                    if not is_empty(each)
                ]
                return {"type": "array", "items": _any_of(found)}
            case ast.Dict():
                return self._object(value, scope)
            case ast.Name(id=name) if name in scope.assigned:
                return self._local(name, scope)
            case ast.Call(func=ast.Name(id=name), args=[values]) if (
                name in _LISTS and name not in scope.values
            ):
                return {"type": "array", "items": self._items(values, scope)}
            case ast.Call():
                return self._called(value, scope)
        return self._of_type(self._kind(value, scope))

    def _object(self, value: ast.Dict, scope: Scope) -> Json:
        properties: dict[str, Json] = {}
        required: set[str] = set()
        is_whole = True
        for key, each in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                properties[key.value] = self.schema(each, scope)
                required.add(key.value)
                continue
            # A key that is computed, or another object whose members may have any of these names.
            more = self.schema(each, scope) if key is None else {}
            ways: list[Json] = more.get("anyOf", [more])
            if not all(way.get("additionalProperties") is False for way in ways):
                is_whole = False
                properties = {name: {} for name in properties}
            for way in ways:
                properties |= way.get("properties", {})
            required |= set.intersection(*(set(way.get("required", ())) for way in ways))
        whole: dict[str, Json] = {"additionalProperties": False} if is_whole else {}
        return {"type": "object", "properties": properties, "required": sorted(required), **whole}

    def _local(self, name: str, scope: Scope) -> Json:
        """Return the schema of a local variable, with what is set in it after it was assigned."""
        # Within its own value, as in ``found = {**found, …}``, the name is what it was before.
        before = replace(scope, assigned={**scope.assigned, name: ()})
        found = [self.schema(each, before) for each in scope.assigned[name]]
        if name not in scope.later:
            return _any_of(found)
        later = scope.later[name]
        if later is None or not all("properties" in each for each in found):
            return {}
        set_later = {key: {} if each is None else self.schema(each, before) for key, each in later.items()}
        return _any_of(
            {
                **each,
                "properties": {
                    **each["properties"],
                    **{
                        key: _any_of((made, each["properties"][key])) if key in each["properties"] else made
                        for key, made in set_later.items()
                    },
                },
                "required": [key for key in each.get("required", ()) if key not in later],
            }
            for each in found
        )

    def _called(self, call: ast.Call, scope: Scope) -> Json:
        match call:
            case ast.Call(func=ast.Attribute(attr="to_thread"), args=[work, *args]):
                return self._called(ast.Call(func=work, args=args, keywords=call.keywords), scope)
            case ast.Call(func=ast.Attribute(value=of, attr="model_dump"), keywords=given):
                return self._dumped(self._kind(of, scope), {each.arg: each.value for each in given})
        callee = self._callee(call.func, scope)
        hint = self._kind(call, scope)
        if callee is None:
            return self._of_type(hint)
        if not is_vague(hint):
            return self._of_type(hint)
        if not isinstance(callee[0], type) and scope.depth < _DEEPEST and (tree := tree_of(callee[0])):
            inner = self._entered(call, callee, scope)
            found = [self.schema(each, inner) for each in returned(tree)]
            if found and {} not in found:
                return _any_of(found)
        return self._of_type(hint)

    def _dumped(self, kind: Any, given: Mapping[str | None, ast.expr]) -> Json:
        """Return the schema of ``model_dump``, perhaps of some fields of a model only."""
        if given.keys() <= {"mode"}:
            return self._of_type(kind)
        only, without = (given.get(name) for name in ("include", "exclude"))
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)) or given.keys() - _DUMPED:
            return {"type": "object"}
        whole = inlined(kind.model_json_schema(mode="serialization"))
        left = set(ast.literal_eval(only) if only is not None else whole["properties"])
        left -= ast.literal_eval(without) if without is not None else set()
        properties = {name: each for name, each in whole["properties"].items() if name in left}
        required = [
            name for name in whole.get("required", ()) if name in left and "exclude_none" not in given
        ]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def _items(self, values: ast.expr, scope: Scope) -> Json:
        values = awaited(values)
        match values:
            case ast.Call(func=ast.Name(id="map"), args=[work, each]):
                return self._called(ast.Call(func=work, args=[item_in(each)], keywords=[]), scope)
            case ast.IfExp(body=body, orelse=ast.List(elts=[])):
                return self._items(body, scope)
            case ast.Call(func=ast.Attribute(attr="gather"), args=[ast.Starred(value=several)]):
                return self._items(several, scope)
        schema = self.schema(values, scope)
        return schema["items"] if "items" in schema else self._of_type(item_of(self._kind(values, scope)))

    def _within(self, generators: list[ast.comprehension], scope: Scope) -> Scope:
        """Return the scope of a comprehension."""
        for each in generators:
            names = each.target.elts if isinstance(each.target, ast.Tuple) else [each.target]
            item = item_of(self._kind(each.iter, scope))
            items = [item] if len(names) == 1 else parts_of(item, len(names))
            known = {
                name.id: kind for name, kind in zip(names, items, strict=True) if isinstance(name, ast.Name)
            }
            hidden = {name: made for name, made in scope.assigned.items() if name not in known}
            scope = replace(scope, kinds={**scope.kinds, **known}, assigned=hidden)
        return scope

    def _entered(self, call: ast.Call, callee: tuple[Any, Any, Any], scope: Scope) -> Scope:
        """Return the scope of a function that is called, whose arguments may be more than it says."""
        function, owner, kind = callee
        names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
        given = [*zip(names, call.args, strict=False), *((each.arg, each.value) for each in call.keywords)]
        declared, kinds = hints_of(function), dict[str, Any]()
        for name, each in given:
            # What takes no None was given none.
            may_be_none = type(None) in typing.get_args(declared.get(str(name)))
            found = self._kind(each, scope)
            found = found if may_be_none else without_none(found)
            if found not in _UNKNOWN:
                kinds[str(name)] = found
        return scope_of(function, owner, kind, kinds, scope.depth + 1)

    def _callee(self, expression: ast.expr, scope: Scope) -> tuple[Any, Any, Any] | None:
        """Return a function that is called, the object that it is a method of, and the type of that."""
        value = self._value(expression, scope)
        value = value.func if isinstance(value, partial) else value
        if value is not None:
            owner = getattr(value, "__self__", None)
            return inspect.unwrap(getattr(value, "__func__", value)), owner, type(owner)
        if isinstance(expression, ast.Attribute):
            kinds = classes_of(self._kind(expression.value, scope))
            kind = kinds[0] if len(kinds) == 1 else None
            found = inspect.getattr_static(kind, expression.attr, None) if kind is not None else None
            others: list[type] = kind.__subclasses__() if kind is not None else []
            if any(expression.attr in vars(other) for other in others):
                return None  # another class may answer otherwise
            if inspect.isfunction(found):
                return found, None, kind
            if isinstance(found, classmethod | staticmethod):
                return found.__func__, None, kind
        return None

    def _value(self, expression: ast.expr, scope: Scope) -> Any:
        """Return the object that a name, perhaps with dots, stands for; None where it comes only later."""
        match expression:
            case ast.Name(id=name) if name not in scope.kinds and name not in scope.assigned:
                return scope.values.get(name)
            case ast.Attribute(value=owner, attr=name) if (of := self._value(owner, scope)) is not None:
                # Not by `getattr`, which runs properties.
                found = inspect.getattr_static(of, name, None)
                if inspect.isfunction(found) and not isinstance(of, types.ModuleType | type):
                    return types.MethodType(found, of)
                if isinstance(found, classmethod | staticmethod):
                    return getattr(of, name)
                return None if isinstance(found, property) else found
        return None

    def _kind(self, value: ast.expr, scope: Scope) -> Any:
        """Return the type of an expression; None where it is not known."""
        value = awaited(value)
        match value:
            case ast.Constant(value=constant):
                return type(constant)
            case ast.Subscript(value=ast.Attribute(attr="path_params")):
                return str
            case ast.Name(id=name) if name in scope.kinds:
                return scope.kinds[name]
            case ast.Name(id=name) if (made := scope.assigned.get(name)) and name not in scope.later:
                before = replace(scope, assigned={**scope.assigned, name: ()})
                return union_of(self._kind(each, before) for each in made)
            case ast.Attribute(value=owner, attr=name) if (
                kind := self._member(self._kind(owner, scope), name)
            ) is not None:
                return kind
            case ast.Name() | ast.Attribute() if (known := self._value(value, scope)) is not None:
                return kind_of(known)
            case ast.IfExp(body=body, orelse=other):
                return union_of(self._kind(each, scope) for each in (body, other) if not is_empty(each))
            case ast.BoolOp(values=parts):
                return union_of(self._kind(each, scope) for each in parts)
            case ast.JoinedStr():
                return str
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return bool
            case ast.Subscript(value=owner, slice=ast.Slice()):
                return self._kind(owner, scope)
            case ast.Subscript(value=owner, slice=ast.Constant(value=int() as at)) if (
                typing.get_origin(whole := without_none(self._kind(owner, scope))) is tuple
            ):
                args = typing.get_args(whole)
                return None if at >= len(args) or ... in args else args[at]
            case ast.Subscript(value=owner):
                return item_of(self._kind(owner, scope))
            case ast.List(elts=items) | ast.Tuple(elts=items):
                within = (
                    item_of(self._kind(each.value, scope))
                    if isinstance(each, ast.Starred)
                    else self._kind(each, scope)
                    for each in items
                    if not is_empty(each)
                )
                item = union_of(within)
                return _list_of(item)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
                kind = self._kind(left, scope)
                return kind if kind in _SIMPLE and kind == self._kind(right, scope) else None
            case ast.ListComp() | ast.GeneratorExp():
                item = self._kind(value.elt, self._within(value.generators, scope))
                return _list_of(item)
            case ast.Call(func=ast.Attribute(attr="to_thread"), args=[work, *args]):
                return self._kind(ast.Call(func=work, args=args, keywords=value.keywords), scope)
            case ast.Call(func=ast.Attribute(value=owner, attr="model_copy")):
                return self._kind(owner, scope)
            case ast.Call():
                return self._kind_of_call(value, scope)
        return None

    def _member(self, kind: Any, name: str) -> Any:
        """Return the type of an attribute; of one of several types, those that have it."""
        kinds = list[Any]()
        for of in classes_of(kind):
            if (found := attribute_of(of, name)) is not None:
                init = scope_of(found.init, None, of, {}, 0)
                kinds.append(found.kind if found.value is None else self._kind(found.value, init))
        union = union_of(kinds)
        return None if union is type(None) else union

    def _kind_of_call(self, call: ast.Call, scope: Scope) -> Any:
        match call:
            case ast.Call(func=ast.Name(id=name), args=[values]) if name in _LISTS:
                item = item_of(self._kind(values, scope))
                return _list_of(item)
            case ast.Call(func=ast.Name(id="map"), args=[work, each]):
                made = self._kind(ast.Call(func=work, args=[item_in(each)], keywords=[]), scope)
                return _list_of(made)
            case ast.Call(func=ast.Name(id="sum"), args=[values]):
                return item_of(self._kind(values, scope))
            case ast.Call(func=ast.Name(id="next"), args=[values, other]):
                return union_of((item_of(self._kind(values, scope)), self._kind(other, scope)))
            case (
                ast.Call(func=ast.Name(id="asdict"), args=[of])
                | ast.Call(func=ast.Attribute(value=of, attr="values"), args=[])
            ):
                return self._kind(of, scope)
            case ast.Call(func=ast.Attribute(value=of, attr="items"), args=[]):
                parts = typing.get_args(self._kind(of, scope))
                return _list_of(types.GenericAlias(tuple, parts)) if parts else None
            case ast.Call(func=ast.Attribute(attr="gather"), args=[ast.Starred(value=values)]):
                item = item_of(self._kind(values, scope))
                return _list_of(item)
            case ast.Call(func=ast.Name(id="zip"), args=several):
                parts = tuple(item_of(self._kind(each, scope)) or Any for each in several)
                return _list_of(types.GenericAlias(tuple, parts))
            case ast.Call(func=ast.Attribute(attr=name)) if name in _CASTS:
                return _CASTS[name]
            case ast.Call(func=ast.Name(id=name)) if name in _CASTS:
                return _CASTS[name]
        callee = self._callee(call.func, scope)
        hint = hint_of(callee[0]) if callee is not None else returned_by(self._kind(call.func, scope))
        if isinstance(hint, TypeVar):
            # ``read(request, Model)`` returns a ``Model``.
            given = (self._value(each, scope) for each in call.args)
            return next((each for each in given if isinstance(each, type)), None)
        # What is generic, such as ``list[T]``, is not known without its arguments.
        return None if not isinstance(hint, type) and getattr(hint, "__parameters__", None) else hint

    def _of_type(self, kind: Any) -> Json:
        if kind in _UNKNOWN:
            return {}
        if kind is type(None):
            return {"type": "null"}
        if typing.get_origin(kind) is list:
            return {"type": "array", "items": self._of_type(typing.get_args(kind)[0])}
        if typing.is_typeddict(kind):
            members = {name: self._of_type(each) for name, each in hints_of(kind).items()}
            return {"type": "object", "properties": members, "required": sorted(kind.__required_keys__)}
        try:
            TypeAdapter(kind)
        except (PydanticUserError, NameError):
            return {}  # an object of ours that is no data
        return self._models(kind)


def _list_of(item: Any) -> Any:
    return None if item is None else types.GenericAlias(list, (item,))


def _any_of(schemas: Iterable[Json]) -> Json:
    found: list[Json] = []
    for each in schemas:
        for one in each["anyOf"] if set(each) == {"anyOf"} else [each]:
            if one not in found:
                found.append(one)
    if any(each.get("type") == "array" and each != _EMPTY for each in found) and _EMPTY in found:
        found.remove(_EMPTY)
    if not found or {} in found:
        return {}
    return found[0] if len(found) == 1 else {"anyOf": found}


def inlined(schema: Json, definitions: Json = None) -> Json:
    """Return a schema with what it refers to put in its place."""
    if isinstance(schema, list):
        return [inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    if "$ref" in schema:
        return inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {name: inlined(each, definitions) for name, each in schema.items() if name != "$defs"}
