"""Arithmetic."""

from agent_core.arithmetic import evaluate
from strawberry_skills import Skill, skill_method


class CalculatorSkill(Skill):
    """Works out arithmetic exactly, which language models do not."""

    labels = {
        "de": {"CalculatorSkill": "Rechner", "calculate": "Rechnen", "expression": "Rechnung"},
        "en": {"expression": "Calculation"},
    }

    device_agnostic = True

    @skill_method(read_only=True, timeout_s=5)
    def calculate(self, expression: str) -> int | float:
        """Work out an expression.

        Knows ``+ - * / // % **`` (also ``^``), parentheses, ``pi``, ``e``, ``tau`` and the functions abs,
        round, floor, ceil, sqrt, exp, log (also with a base), log2, log10, sin, cos, tan, asin, acos, atan,
        degrees, radians, min, max, sum, gcd, factorial.

        Args:
            expression: For example ``(3 + 4) * sqrt(2)``.
        """
        return evaluate(expression)
