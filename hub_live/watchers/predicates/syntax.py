"""Predicates as text: nodes of their grammar, and the check of all that does not depend on values.

What is wrong with an expression whatever its values are is an error here, with its column: unknown names and
functions, text in a calculation, a number where a condition belongs, and what goes beyond the bounds.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, cast

from agent_core.times import parse_duration
from contracts.errors import InvalidMessage, PredicateError
from contracts.phrases import Phrase
from contracts.text import shortened
from contracts.validation import did_you_mean
from hub_live import limits
from hub_live.watchers.predicates.clock import CLOCK, time_of

if TYPE_CHECKING:
    from lark import Lark, Token

KEYWORDS: Final = ("and", "or", "not", "for", "true", "false", "between", *CLOCK)
"""Words that cannot name a value."""


Kind = Literal["number", "time", "clock", "text", "truth", "any"]
"""What an operation gives; a ``time`` is a number of seconds that grows with the clock, a ``clock`` the time
of day, ``any`` depends on values."""

_IS: Final[Mapping[Kind, str]] = {
    "number": "a number",
    "time": "a duration",
    "clock": "the time of day",
    "text": "text",
    "truth": "true or false",
}
FUNCTIONS: Final[Mapping[str, Kind]] = {
    "age": "time",
    "changed": "truth",
    "count": "number",
    "last": "any",
    "max": "number",
    "mean": "number",
    "min": "number",
    "rate": "number",
}
_OTHER_NAMES: Final = {"avg": "mean", "average": "mean", "derivative": "rate"}
_DURATION_HINT: Final = 'Durations are texts: "30s", "5m", "1h30m", "7d".'
_JOIN: Final = "Compare two values at a time and join with 'and': 1 < x and x < 5."
_QUOTE: Final = "A text ends with the quotation mark that it begins with."
_HINTS: Final = {
    "=": "Compare with ==.",
    "&": "Write 'and'.",
    "|": "Write 'or'.",
    "!": "Write 'not'.",
    "*": "There are no powers.",
    **dict.fromkeys(("<", ">", "<=", ">=", "==", "!="), _JOIN),
    **dict.fromkeys("\"'", _QUOTE),
    **dict.fromkeys(("s", "m", "h", "d", "w"), _DURATION_HINT),
    "for": "'for' stands at the end and holds for the whole condition.",
}


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of a predicate.

    Attributes:
        op: ``constant``, ``name``, ``clock``, ``and``, ``or``, ``not``, an operator, or a function.
        column: Where it begins, from 1.
        value: Of a constant; of a name or a function the name.
        window_s: Of a function with a window.
        text: A name, a call or a constant in its usual spelling; empty of a number.
    """

    op: str
    kind: Kind
    column: int
    parts: tuple["Node", ...] = ()
    value: float | str | bool = ""
    window_s: float | None = None
    text: str = ""
    depth: int = 1

    @property
    def source(self) -> str:
        """The operation as it is written."""
        if not self.parts:
            return self.text or f"{self.value:g}"
        shown: list[str] = []
        for part in self.parts:
            is_junction = self.op in ("and", "or")
            is_loose = part.op in ("and", "or") if is_junction else self.op == "not" or self.kind != "truth"
            shown.append(f"({part.source})" if is_loose and len(part.parts) > 1 else part.source)
        return f"not {shown[0]}" if self.op == "not" else f" {self.op} ".join(shown)

    def walk(self) -> Iterator["Node"]:
        """Yield this operation and all that are in it."""
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate that can be evaluated.

    Attributes:
        text: As it was given.
        names: Those that it uses.
        clock_names: Those of the clock that it uses.
        keep_s: How many seconds of values each of them needs; 0 for the latest value only.
        root: The condition.
        for_s: How long the condition must hold without interruption.
    """

    text: str
    names: frozenset[str]
    clock_names: frozenset[str]
    keep_s: Mapping[str, float]
    root: Node
    for_s: float

    @property
    def parts(self) -> tuple[Node, ...]:
        """Return the operands of an outermost ``and`` or ``or``; the root alone if there is none."""
        return self.root.parts if self.root.op in ("and", "or") else (self.root,)


def parse(text: str, names: Collection[str]) -> Predicate:
    """Read a predicate.

    Args:
        text: For example ``disk > 95 and mean(disk, "10m") > 90``.
        names: Of the values that it may use.

    Raises:
        PredicateError: If it cannot be read; the message names the column.
    """
    from lark import UnexpectedInput, UnexpectedToken  # Only homes with watchers need it.

    if len(text) > limits.MOST_TEXT:
        _fail(
            f"the predicate has {len(text):,} characters; {limits.MOST_TEXT:,} are allowed",
            limits.MOST_TEXT + 1,
        )
    try:
        # The transformer makes this of the start rule.
        root, for_s = cast("tuple[Node, float]", _parser().parse(text))
    except UnexpectedInput as error:
        token = error.token if isinstance(error, UnexpectedToken) else None
        at = error.pos_in_stream
        at_end = at is None or at >= len(text) or (token is not None and token.type == "$END")
        _unexpected(text, len(text) if at_end or at is None else at, token)
    keep_s: dict[str, float] = {}
    windows: set[str] = set()
    for node in root.walk():
        if isinstance(node.value, str) and node.op not in ("constant", "clock") and node.value:
            if node.value not in names:
                hint = Phrase("Known names: {names}.", names=", ".join(sorted(names)[:10])) if names else ""
                near = did_you_mean(node.value, [*names, *CLOCK])
                _fail(f"unknown name {_short(node.value)}", node.column, after=near, hint=hint)
            keep_s[node.value] = max(keep_s.get(node.value, 0.0), (node.window_s or 0.0) + for_s)
            if node.window_s is not None:
                windows.add(node.text)
                if len(windows) > limits.MOST_WINDOWS:
                    _fail(f"more than {limits.MOST_WINDOWS} different windows", node.column)
    clock_names = frozenset(node.text for node in root.walk() if node.op == "clock")
    if not keep_s and not clock_names:
        _fail("the predicate uses no value, so it never changes", 1)
    return Predicate(text, frozenset(keep_s), clock_names, keep_s, root, for_s)


def _unexpected(text: str, at: int, token: "Token | None") -> NoReturn:
    if at >= len(text):
        _fail("the predicate ends too early" if text.strip() else "the predicate is empty", len(text) + 1)
    found = str(token) if token else text[at]
    shown = shortened(found, 20)
    _fail(f"unexpected {shown!r}", at + 1, hint=_HINTS.get(found.lower(), ""))


def _fail(message: str, column: int, *, after: str = "", hint: str = "") -> NoReturn:
    raise PredicateError(
        "{text} at column {column}{after}",
        text=message,
        column=column,
        after=after,
        hint=hint,
        position=column,
    )


class _Nodes:
    """Makes the nodes, from the innermost out; the methods are named as the rules of ``grammar.lark``."""

    def start(self, items: list[Any]) -> tuple[Node, float]:
        root = _condition(items[0])
        return root, _seconds(str(items[2])[1:-1], items[2].start_pos + 1) if len(items) > 1 else 0.0

    def any_of(self, items: list[Node]) -> Node:
        return _node("or", "truth", items[0].column, *map(_condition, items))

    def all_of(self, items: list[Node]) -> Node:
        return _node("and", "truth", items[0].column, *map(_condition, items))

    def negation(self, items: list[Any]) -> Node:
        return _node("not", "truth", _column(items[0]), _condition(items[1]))

    def compared(self, items: list[Any]) -> Node:
        left, op, right = _with_times(*_with_durations(items))
        if op not in ("==", "!="):
            left, right = _number(left, f"compared by {op}"), _number(right, f"compared by {op}")
        return _node(op, "truth", left.column, left, right)

    def between(self, items: list[Any]) -> Node:
        name, begin, end = self.name([items[0]]), self.text([items[2]]), self.text([items[3]])
        if name.kind != "clock":
            _fail("only time is between two times", name.column, hint=_JOIN)
        begin, end = _clock_text(name, begin), _clock_text(name, end)
        since = _node(">=", "truth", name.column, name, begin)
        until = _node("<", "truth", name.column, name, end)
        over_midnight = cast("float", begin.value) > cast("float", end.value)
        return _node("or" if over_midnight else "and", "truth", name.column, since, until)

    def calculated(self, items: list[Any]) -> Node:
        left, op, right = _with_durations(items)
        left, right = _number(left, "calculated with"), _number(right, "calculated with")
        # A product of durations is none, and a text beside it would be read as one.
        if right.kind == "time" and (op == "/" or (op == "*" and left.kind == "time")):
            _fail("a duration by age() can be multiplied and divided by a number only", right.column)
        return _node(op, "time" if "time" in (left.kind, right.kind) else "number", left.column, left, right)

    def minus(self, items: list[Any]) -> Node:
        part, column = _number(items[1], "negated"), _column(items[0])
        if part.op == "constant":
            return Node("constant", "number", column, value=0.0 - cast("float", part.value))
        return _node("-", part.kind, column, Node("constant", "number", column, value=0.0), part)

    def number(self, items: list["Token"]) -> Node:
        value = float(items[0])
        if value > limits.MOST_NUMBER:
            _fail(f"the number is larger than {limits.MOST_NUMBER:g}", _column(items[0]))
        return Node("constant", "number", _column(items[0]), value=value)

    def text(self, items: list["Token"]) -> Node:
        text = str(items[0])[1:-1]
        return Node("constant", "text", _column(items[0]), value=text, text=f'"{text}"')

    def truth(self, items: list["Token"]) -> Node:
        text = items[0].lower()
        return Node("constant", "truth", _column(items[0]), value=text == "true", text=text)

    def name(self, items: list["Token"]) -> Node:
        if (name := str(items[0])) in CLOCK:
            kind: Kind = "clock" if name == "time" else "text"
            return Node("clock", kind, _column(items[0]), value=name, text=name)
        return Node("name", "any", _column(items[0]), value=str(items[0]), text=str(items[0]))

    def call(self, items: list[Any]) -> Node:
        function, column, arguments = str(items[0]), _column(items[0]), items[1:]
        if function not in FUNCTIONS:
            hint = Phrase("Functions: {functions}.", functions=", ".join(FUNCTIONS))
            near = did_you_mean(_OTHER_NAMES.get(function, function), FUNCTIONS)
            _fail(f"unknown function {_short(function)}", column, after=near, hint=hint)
        least, most = {"age": (1, 1), "changed": (1, 2)}.get(function, (2, 2))
        usage = f"Write {function}(name{', ' * (most > 1)}{chr(34) + '10m' + chr(34) if most > 1 else ''})."
        if not least <= len(arguments) <= most or arguments[0].op != "name":
            _fail(f"{function} has other arguments", column, hint=usage)
        name = str(arguments[0].value)
        if len(arguments) == 1:
            return Node(function, FUNCTIONS[function], column, value=name, text=f"{function}({name})")
        window = arguments[1]
        if window.op != "constant" or not isinstance(window.value, str):
            _fail("a window is a text", window.column, hint=usage)
        text = f'{function}({name}, "{window.value}")'
        window_s = _seconds(window.value, window.column)
        return Node(function, FUNCTIONS[function], column, value=name, window_s=window_s, text=text)


def _column(token: "Token") -> int:
    return (token.start_pos or 0) + 1


def _short(name: str) -> str:
    return repr(shortened(name, 40))


def _node(op: str, kind: Kind, column: int, *parts: Node) -> Node:
    depth = 1 + max(part.depth for part in parts)
    if depth > limits.MOST_DEPTH:
        _fail(f"more than {limits.MOST_DEPTH} operations in one another", column)
    return Node(op, kind, column, parts, depth=depth)


def _condition(node: Node) -> Node:
    if node.kind not in ("truth", "any"):
        _fail(f"{_IS[node.kind]} is no condition", node.column, hint="Compare it, for example with > 0.")
    return node


def _number(node: Node, use: str) -> Node:
    if node.kind in ("text", "truth") or (node.kind == "clock" and use.startswith(("calc", "neg"))):
        _fail(f"{_IS[node.kind]} cannot be {use}", node.column)
    return node


def _with_durations(items: list[Any]) -> tuple[Node, str, Node]:
    """Return operand, operator, operand; a text beside a duration is one itself."""
    left, op, right = items

    def seconds(text: Node) -> Node:
        value = _seconds(str(text.value), text.column)
        return Node("constant", "number", text.column, value=value, text=text.text)

    if left.kind == "time" and right.kind == "text":
        right = seconds(right)
    elif right.kind == "time" and left.kind == "text":
        left = seconds(left)
    return left, str(op), right


def _with_times(left: Node, op: str, right: Node) -> tuple[Node, str, Node]:
    """Return operand, operator, operand; a text beside the clock is what that can be."""
    if left.op == "clock" and right.op == "constant":
        right = _clock_text(left, right)
    elif right.op == "clock" and left.op == "constant":
        left = _clock_text(right, left)
    return left, op, right


def _clock_text(clock: Node, constant: Node) -> Node:
    text, known = str(constant.value), CLOCK[str(clock.value)]
    if known:
        if text not in known:
            hint = Phrase("Write {names}.", names=", ".join(f'"{each}"' for each in known))
            near = did_you_mean(text, known)
            _fail(f"{clock.text} is never {_short(text)}", constant.column, after=near, hint=hint)
        return constant
    if constant.kind != "text" or (seconds := time_of(text)) is None:
        _fail(f"{_short(text)} is no time of day", constant.column, hint='Write "22:00".')
    return Node("constant", "number", constant.column, value=seconds, text=constant.text)


def _seconds(text: str, column: int) -> float:
    try:
        seconds = parse_duration(text)
    except InvalidMessage:
        _fail(f"{_short(text)} is not a duration", column, hint=_DURATION_HINT)
    if not 1 <= seconds <= limits.MOST_DURATION_S:
        _fail(f"{_short(text)} is not between 1s and 31d", column)
    return seconds


@cache
def _parser() -> "Lark":
    from lark import Lark

    return Lark.open("grammar.lark", rel_to=__file__, parser="lalr", lexer="basic", transformer=_Nodes())
