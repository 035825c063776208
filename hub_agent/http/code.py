"""The code of functions: what their names stand for, and the types that they declare. Nothing of it runs."""

import ast
import inspect
import textwrap
import types
import typing
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any


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
    stored: Counter[str] = Counter()
    for node in _statements(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=made)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as made)
            ):
                assigned.setdefault(name, []).append(made)
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
            case ast.AugAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys, values=made_)):
                for each, made in zip(keys, made_, strict=True):
                    _note(later, name, each, made)
                stored[name] -= 1
            case ast.AugAssign(target=ast.Name(id=name)):
                later[name] = None
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update" | "setdefault" | "pop")):
                later[name] = None
            case ast.Name(id=name, ctx=ast.Store()):
                stored[name] += 1
    for name, count in stored.items():
        if count != len(assigned.get(name, ())):
            # By a loop, a context or in another way that is not read here.
            assigned.pop(name, None)
            kinds[name] = None
    return Scope(values, kinds, assigned, later, depth)


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
        return {}  # a type that is imported for the type checker alone


def hint_of(function: Any) -> Any:
    """Return the type that a function returns, or, awaited, gives."""
    if isinstance(function, type):
        return function
    hint = hints_of(function).get("return")
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Awaitable else hint


def class_of(kind: Any) -> Any:
    """Return the class of a type, of one that may be None that of the other; None where there is none."""
    others = [each for each in typing.get_args(kind) if each is not type(None)]
    if isinstance(kind, types.UnionType) and len(others) == 1:
        kind = others[0]  # what has a member is not None
    found = typing.get_origin(kind) or kind
    return found if isinstance(found, type) else None


def member_of(kind: Any, name: str) -> Any:
    """Return the type of an attribute of a type."""
    of = class_of(kind)
    if of is None:
        return None
    found = inspect.getattr_static(of, name, None)
    if isinstance(found, property):
        return hint_of(found.fget)
    return hints_of(of).get(name)


def item_of(kind: Any) -> Any:
    """Return the type of what a collection has: of an object, of its values."""
    args = typing.get_args(kind)
    return args[-1] if typing.get_origin(kind) is dict and args else args[0] if args else None


def parts_of(kind: Any, count: int) -> Sequence[Any]:
    """Return the types of the values of a tuple; None for each where they are not known."""
    args = typing.get_args(kind)
    return args if typing.get_origin(kind) is tuple and len(args) == count else [None] * count
