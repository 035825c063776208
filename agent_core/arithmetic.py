"""Arithmetic from text, by walking its syntax tree: nothing of it is ever run as code."""

import ast
import math
import operator
from collections.abc import Callable
from typing import Any, Final

from agent_core import limits

Number = int | float


_TOO_LARGE: Final = "the result is too large"
_UNREAL: Final = "the result is not a real number"

_OPERATORS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_SIGNS: Final[dict[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_CONSTANTS: Final = {"pi": math.pi, "e": math.e, "tau": math.tau}


def evaluate(expression: str) -> Number:
    """Work out an expression.

    Raises:
        ValueError: It is no arithmetic, or has no finite result that can be written down.
    """
    if len(expression) > limits.MAX_EXPRESSION:
        raise ValueError(f"the expression is longer than {limits.MAX_EXPRESSION} characters")
    text = expression.replace("×", "*").replace("÷", "/").replace("−", "-").replace("^", "**")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _checked(_value(tree.body))
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{expression!r} is no arithmetic expression") from None
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except (OverflowError, TypeError) as error:
        raise ValueError(str(error)) from None


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _checked(number)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            return _checked(_SIGNS[type(sign)](_value(operand)))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _checked(_OPERATORS[type(sign)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _checked(_FUNCTIONS[name](*map(_value, arguments)))
    raise ValueError(f"{ast.unparse(node)!r} is nothing that can be worked out")


def _power(base: Number, exponent: Number) -> Number:
    # Before the work, not after: 9**9**9 would not end.
    is_whole = isinstance(base, int) and isinstance(exponent, int) and base not in (-1, 0, 1)
    if is_whole and exponent > 0 and int(base).bit_length() * exponent > limits.MAX_BITS:
        raise ValueError(_TOO_LARGE)
    return _checked(base**exponent)


def _round(number: Number, digits: int = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > limits.MAX_DIGITS:
        raise ValueError(f"round takes at most {limits.MAX_DIGITS} digits")
    return round(number, digits) if digits else round(number)


def _factorial(number: Number) -> int:
    if not isinstance(number, int) or not 0 <= number <= limits.MAX_FACTORIAL:
        raise ValueError(f"factorial takes a whole number from 0 to {limits.MAX_FACTORIAL}")
    return math.factorial(number)


def _checked(value: Any) -> Number:
    if isinstance(value, int) and value.bit_length() <= limits.MAX_BITS:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(_UNREAL if isinstance(value, complex) else _TOO_LARGE)


_MATH: Final[tuple[Callable[..., Any], ...]] = (
    *(math.floor, math.ceil, math.sqrt, math.exp, math.log, math.log2, math.log10, math.gcd),
    *(math.sin, math.cos, math.tan, math.asin, math.acos, math.atan, math.degrees, math.radians),
)
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{function.__name__: function for function in _MATH},
    "abs": abs,
    "round": _round,
    "min": lambda *numbers: min(numbers),
    "max": lambda *numbers: max(numbers),
    "sum": lambda *numbers: sum(numbers),
    "factorial": _factorial,
}
