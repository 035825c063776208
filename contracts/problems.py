"""Problem details, the form of an error answer over HTTP (RFC 9457), as clients read them."""

from dataclasses import dataclass
from typing import Any, Final

PROBLEM_JSON: Final = "application/problem+json"
"""Media type of problem details."""

_OWN: Final = frozenset({"type", "title", "status", "detail", "message", "code", "hint", "param"})


@dataclass(frozen=True)
class ProblemDetails:
    """What an error answer says.

    Attributes:
        message: One line: what happened.
        code: Which error it is; empty where the answer names none.
        hint: One line: what to do about it; may be empty.
        more: Its further members, for example ``confirmation``.
    """

    message: str
    code: str
    hint: str
    more: dict[str, Any]

    @classmethod
    def read(cls, body: Any) -> "ProblemDetails | None":
        """Read the JSON of an answer, in this form or that of OpenAI's API; None where it is no error."""
        if isinstance(body, dict) and isinstance(body.get("error"), dict):
            body = body["error"]
        if not isinstance(body, dict) or not (message := body.get("detail") or body.get("message")):
            return None
        more = {name: value for name, value in body.items() if name not in _OWN}
        return cls(str(message), str(body.get("code") or ""), str(body.get("hint") or ""), more)
