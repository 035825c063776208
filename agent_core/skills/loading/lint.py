"""Advice to the author of a skill: what loads, and yet serves a model or a person badly."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from agent_core.skills.loading.exposure import LoadedMethod, LoadedSkill
from agent_core.skills.settings import SETTINGS_METHODS
from contracts.devices.registration import MethodFlags

_EMPTY: Final = re.compile(
    "action|arg|args|call|command|data|do|execute|foo|func|function|go|handle|input|invoke|item|main|manage|method|"
    "obj|object|operate|param|params|perform|process|run|stuff|thing|tmp|val|work|."
)
_READS: Final = re.compile("check|count|describe|find|get|is|list|read|search|show|status")
_LOSES: Final = re.compile(
    "buy|clear|delete|destroy|drop|erase|format|kill|order|overwrite|pay|purge|reboot|remove|reset|restart|sell|"
    "send|shutdown|transfer|uninstall|unlock|wipe"
)
_BOUND: Final = re.compile("amount|count|days|first|hours|last|limit|max.*|most|number|page|query|since|top")
_MOST_DESCRIBED: Final = 2_400
"""Characters of signature and documentation of one method: some 600 tokens each time that a model looks."""


@dataclass(frozen=True)
class Advice:
    """What could be better.

    Attributes:
        where: The skill, or ``Skill.method``.
        problem: What is wrong.
        advice: What to write.
    """

    where: str
    problem: str
    advice: str


def lint(skill: LoadedSkill) -> Iterator[Advice]:
    """Look at a skill as a model and a person meet it."""
    if not skill.registration.doc.strip():
        yield Advice(skill.name, "has no docstring", "say in one line what it is, as: The coffee machine")
    for name, method in skill.methods.items():
        if name not in SETTINGS_METHODS:
            for problem, advice in _of_method(name, method):
                yield Advice(f"{skill.name}.{name}", problem, advice)


def _of_method(name: str, method: LoadedMethod) -> Iterator[tuple[str, str]]:
    contract = method.contract
    if not contract.doc.strip():
        yield "has no docstring", "say in the first line what it does: the model sees no code"
    elif len(contract.doc) + len(contract.signature) > _MOST_DESCRIBED:
        yield f"is described in more than {_MOST_DESCRIBED:,} characters", "shorten the docstring"
    signature, result = inspect.signature(method.function), contract.result or {}
    is_open_ended = result.get("type") == "array" and "maxItems" not in result
    for parameter in signature.parameters.values():
        if parameter.annotation is parameter.empty:
            yield f"the argument {parameter.name} has no type", f"write {parameter.name}: int, str, …"
        if _EMPTY.fullmatch(parameter.name):
            yield f"the name of its argument {parameter.name} says nothing", "as: cups, room, celsius"
    if signature.return_annotation is signature.empty:
        yield "has no type for its result", "write -> None, -> str, …"
    elif is_open_ended and not any(map(_BOUND.fullmatch, signature.parameters)):
        yield "may return a list of any length", "add an argument such as limit: int = 20, and return no more"
    if _EMPTY.fullmatch(name):
        yield "has a name that says nothing", "name what it does: brew, open_blind"
    yield from _of_flags(name, contract.flags, method.function)


def _of_flags(name: str, flags: MethodFlags, function: Any) -> Iterator[tuple[str, str]]:
    words = name.lower().split("_")
    reads = _READS.fullmatch(words[0])
    if losing := next(filter(_LOSES.fullmatch, words), None):
        if not (flags.destructive or flags.confirm):
            yield f"its name says {losing}, and it asks nobody", "declare destructive=True or confirm=True"
    elif flags.unknown:
        flag = "read_only=True" if reads else ""
        yield "does not declare what it may do, so each call is asked about", f"add @skill_method({flag})"
    elif reads and not flags.read_only:
        yield "reads by its name, and is not read_only", "declare read_only=True: guests may call it then"
    if flags.read_only and (written := losing or _written(function)):
        yield f"is read_only, and yet there is {written}", "leave read_only out if it changes something"


def _written(function: Any) -> str:
    """Return the first public attribute that a method sets; a private one may be a cache."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr[0] != "_":
            return f"an assignment to {ast.unparse(node)}"
    return ""
