"""The code of functions: what their names stand for, and the types that they declare. Nothing of it runs."""

import ast
import inspect
import sys
import textwrap
import types
import typing
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, cached_property
from typing import Annotated, Any, Literal, NamedTuple, Union


@dataclass(frozen=True)
class Scope:
    """What the names of a function stand for.

    Attributes:
        values: What exists already: globals, what a closure has, the owner of a method.
        kinds: Types of what there will be: arguments, variables of a comprehension.
        assigned: What is assigned to local names.
        later: By local name, what is set later in the object that it stands for; None where it is not known.
    """

    values: Mapping[str, Any]
    kinds: Mapping[str, Any]
    assigned: Mapping[str, Sequence[ast.expr]] = field(default_factory=dict)
    later: Mapping[str, Mapping[str, ast.expr | None] | None] = field(default_factory=dict)
    depth: int = 0


def scope_of(function: Any, owner: Any, kind: Any, given: Mapping[str, Any], depth: int) -> Scope:
    """Return the scope of a function.

    Args:
        owner: The object that it is a method of, or None; ``kind`` is its type.
        given: Types of arguments, as they are called with.
    """
    tree = tree_of(function)
    if tree is None:
        return Scope({}, {}, depth=depth)
    # Not `inspect.getclosurevars`, which leaves out what a comprehension uses.
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    values = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}
    names = list(inspect.signature(function).parameters)
    kinds = {**dict.fromkeys(names), **hints_of(function), **given}
    if names and names[0] in ("self", "cls"):
        if owner is not None:
            values[names[0]] = owner
            del kinds[names[0]]
        else:
            kinds[names[0]] = kind
    assigned: dict[str, list[ast.expr]] = {}
    later: dict[str, dict[str, ast.expr | None] | None] = {}
    grown: dict[str, list[ast.expr]] = {}
    hinted: dict[str, ast.expr] = {}
    stored: Counter[str] = Counter()
    for node in _statements(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=made):
                assigned.setdefault(name, []).append(made)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=hint, value=ast.expr() as made):
                assigned.setdefault(name, []).append(made)
                hinted[name] = hint
            case ast.Assign(targets=[ast.Tuple(elts=names_)], value=ast.Tuple(elts=made_)):
                for target, made in zip(names_, made_, strict=False):
                    if isinstance(target, ast.Name):
                        assigned.setdefault(target.id, []).append(made)
            case ast.Assign(targets=[ast.Tuple(elts=names_)], value=made):
                for at, target in enumerate(names_):
                    if isinstance(target, ast.Name):
                        index = ast.Subscript(value=made, slice=ast.Constant(at), ctx=ast.Load())
                        assigned.setdefault(target.id, []).append(index)
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=key)], value=made):
                _note(later, name, key, made)
            case ast.Delete(targets=[ast.Subscript(value=ast.Name(id=name), slice=key)]):
                _note(later, name, key, None)
            case ast.NamedExpr(target=ast.Name(id=name), value=made):
                assigned.setdefault(name, []).append(made)
            case ast.For(target=ast.Name(id=name), iter=items):
                assigned.setdefault(name, []).append(item_in(items))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[item]):
                grown.setdefault(name, []).append(item)
            case ast.For(target=ast.Tuple(elts=names_), iter=items):
                for at, target in enumerate(names_):
                    if isinstance(target, ast.Name):
                        part = ast.Subscript(value=item_in(items), slice=ast.Constant(at), ctx=ast.Load())
                        assigned.setdefault(target.id, []).append(part)
            case ast.AugAssign(
                target=ast.Name(id=name),
                value=ast.List() | ast.ListComp() | ast.Call() | ast.Await() as items,
            ):
                grown.setdefault(name, []).append(ast.Starred(value=items))
                stored[name] -= 1
            case ast.AugAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys, values=made_)):
                for each, made in zip(keys, made_, strict=True):
                    _note(later, name, each, made)
                stored[name] -= 1
            case ast.AugAssign(target=ast.Name(id=name)):
                later[name] = None
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update" | "setdefault" | "pop")):
                later[name] = None
            case ast.comprehension(target=target):
                stored.subtract(each.id for each in ast.walk(target) if isinstance(each, ast.Name))
            case ast.Name(id=name, ctx=ast.Store()):
                stored[name] += 1
    for name, items_ in grown.items():
        assigned[name] = [ast.List(elts=[*map(_starred, assigned.get(name, ())), *items_])]
        stored[name] = 1
    for name, count in stored.items():
        if count != len(assigned.get(name, ())):
            # By a loop, a context or in another way that is not read here.
            assigned.pop(name, None)
            kinds[name] = None
    for name, hint in hinted.items():
        if not is_vague(kind := _hint(function, ast.unparse(hint))):
            kinds[name] = kind
            assigned.pop(name, None)
    return Scope(values, kinds, assigned, later, depth)


def item_in(items: ast.expr) -> ast.expr:
    """Return the expression of some item of a collection."""
    return ast.Subscript(value=items, slice=ast.Name(id="_"), ctx=ast.Load())


def _starred(items: ast.expr) -> ast.expr:
    return ast.Starred(value=items)


def _note(
    later: dict[str, dict[str, ast.expr | None] | None],
    name: str,
    key: ast.expr | None,
    made: ast.expr | None,
) -> None:
    known = later.setdefault(name, {})
    if known is not None and isinstance(key, ast.Constant) and isinstance(key.value, str):
        known[key.value] = made
    else:
        later[name] = None


def tree_of(function: Any) -> ast.AST | None:
    """Return the code of a function; None where there is none to read."""
    return _tree(function.__code__) if inspect.isfunction(function) else None


@cache
def _tree(code: types.CodeType) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(code))).body[0]
    except (OSError, SyntaxError):
        return None  # a program without its source


def _statements(function: ast.AST) -> Iterator[ast.AST]:
    """Iterate over the code of a function, without that of functions within it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from _statements(node)


def returned(function: ast.AST) -> Iterator[ast.expr]:
    """Iterate over what a function returns."""
    return (node.value for node in _statements(function) if isinstance(node, ast.Return) and node.value)


def awaited(value: ast.expr) -> ast.expr:
    """Return the expression that is awaited, or the expression itself."""
    return value.value if isinstance(value, ast.Await) else value


def hints_of(function: Any) -> Mapping[str, Any]:
    """Return the types that a function or a class declares, by name."""
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        # One of them is imported for the type checker alone.
        found = getattr(function, "__annotations__", {})
        return {name: hint for name, each in found.items() if (hint := _hint(function, each)) is not None}


def _hint(of: Any, annotation: Any) -> Any:
    """Return the type that an annotation in the code of a function or a class names; None if none does."""
    named = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(named, vars(sys.modules[of.__module__]))["it"]
    except (NameError, TypeError, KeyError):
        return None


def is_vague(kind: Any) -> bool:
    """Return whether a type is not known, or has a part that may be anything."""
    is_anything = kind in (None, Any, object)
    return is_anything or (
        typing.get_origin(kind) is not Literal and any(map(is_vague, typing.get_args(kind)))
    )


def hint_of(function: Any) -> Any:
    """Return the type that a function returns, or, awaited, gives."""
    if isinstance(function, type):
        return function
    hint = hints_of(function).get("return")
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Awaitable else hint


def returned_by(kind: Any) -> Any:
    """Return the type that a function of a type ``Callable`` returns, awaited."""
    if typing.get_origin(kind) is not Callable:
        return None
    made = typing.get_args(kind)[1]
    return typing.get_args(made)[0] if typing.get_origin(made) is Awaitable else made


def without_none(kind: Any) -> Any:
    """Return the type of what may be None where it is not."""
    if typing.get_origin(kind) not in (types.UnionType, Union):
        return kind
    return union_of(each for each in typing.get_args(kind) if each is not type(None))


def classes_of(kind: Any) -> list[type]:
    """Return the classes that a value of a type may have; not that of None, which has no members."""
    if typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    kinds = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, Union) else [kind]
    found = (typing.get_origin(each) or each for each in kinds)
    return [each for each in found if isinstance(each, type) and each is not type(None)]


def is_empty(values: ast.expr) -> bool:
    """Return whether an expression is an empty list or tuple, or one of nothing else."""
    elts = values.elts if isinstance(values, ast.List | ast.Tuple) else [values]
    return all(isinstance(each, ast.Starred) and is_empty(each.value) for each in elts)


def union_of(kinds: Iterable[Any]) -> Any:
    """Return the type of what may have each of these types; None where one is not known."""
    found = list(kinds)
    return None if not found or None in found else Union[tuple(found)]  # noqa: UP007 - made as it runs


class Attribute(NamedTuple):
    """An attribute of a class: its type, or what the constructor sets it to."""

    kind: Any
    init: Any = None
    value: ast.expr | None = None


def attribute_of(of: type, name: str) -> Attribute | None:
    """Return an attribute of a class; None where it has no such attribute."""
    if issubclass(of, Enum) and name == "value":
        return Attribute(Literal[tuple(each.value for each in of)])
    found = inspect.getattr_static(of, name, None)
    if isinstance(found, property | cached_property):
        return Attribute(hint_of(found.fget if isinstance(found, property) else found.func))
    if (hint := hints_of(of).get(name)) is not None:
        return Attribute(hint)
    for owner in of.__mro__:
        init = vars(owner).get("__init__")
        for node in _statements(tree_of(init) or ast.Pass()):
            match node:
                case ast.AnnAssign(target=ast.Attribute(attr=attr), annotation=given) if attr == name:
                    return Attribute(_hint(owner, ast.unparse(given)))
                case ast.Assign(targets=[ast.Attribute(attr=attr)], value=made) if attr == name:
                    return Attribute(None, init, made)
    return None


def item_of(kind: Any) -> Any:
    """Return the type of what a collection has: of an object, of its values."""
    args = typing.get_args(kind)
    if typing.get_origin(kind) in (types.UnionType, Union):
        return union_of(map(item_of, args))
    return args[-1] if typing.get_origin(kind) is dict and args else args[0] if args else None


def kind_of(value: Any) -> Any:
    """Return the type of an object: of a collection, with the types of what it has."""
    match value:
        case Mapping() if value:
            return dict[union_of(map(type, value)), union_of(map(kind_of, value.values()))]  # type: ignore[misc]
        case tuple() if value:
            return tuple[tuple(map(kind_of, value))]  # type: ignore[misc]
        case list() if value:
            return list[union_of(map(kind_of, value))]  # type: ignore[misc]
    return type(value)


def parts_of(kind: Any, count: int) -> Sequence[Any]:
    """Return the types of the values of a tuple; None for each where they are not known."""
    args = typing.get_args(kind)
    return args if typing.get_origin(kind) is tuple and len(args) == count else [None] * count
