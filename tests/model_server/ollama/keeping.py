"""How long Ollama keeps a model in memory: ``keep_alive`` of a request."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.model_server.ollama.rules import Refused

_DEFAULT: Final = timedelta(minutes=5)
_FOR_EVER: Final = datetime(2318, 1, 2, tzinfo=UTC)
"""The longest time that Go can count, from when this was written."""
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_GO_TYPES: Final = {bool: "bool", list: "[]interface {}", dict: "map[string]interface {}"}
_DURATION: Final = re.compile(r"(-?)((?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+|0)")
_PART: Final = re.compile(r"([0-9.]+)(ms|s|m|h)")


def keep_alive(body: dict[str, Any]) -> timedelta | None:
    """Give how long the model stays after a request; None for ever.

    Raises:
        Refused: If it is neither a number of seconds nor a duration as Go writes it, for example ``10m``.
    """
    asked = body.get("keep_alive")
    if asked is None:
        return _DEFAULT
    if isinstance(asked, str):
        seconds = _parsed(asked)
    elif isinstance(asked, int | float) and not isinstance(asked, bool):
        seconds = float(asked)
    else:
        raise Refused(400, f"Unsupported type: '{_GO_TYPES[type(asked)]}'")
    return None if seconds < 0 else timedelta(seconds=seconds)


def expiry(kept: timedelta | None) -> datetime:
    """Give when a model that is used now leaves the memory."""
    return _FOR_EVER if kept is None else datetime.now(UTC) + kept


def _parsed(text: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise Refused(400, f'time: invalid duration "{text}"')
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(found[2]))
    return -seconds if found[1] else seconds
