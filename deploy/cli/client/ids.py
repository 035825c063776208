"""IDs as git takes them: the beginning is enough."""

from collections.abc import Iterable
from typing import Final

from contracts.errors import ConfigError

_SHORTEST: Final = 4
"""Characters that a beginning has at least, as with git: fewer are rather a typo."""


def whole_id(given: str, known: Iterable[str]) -> str:
    """Return the known id that begins so; what begins none of them as it is given.

    Raises:
        ConfigError: If several begin so.
    """
    begun = [each for each in known if each.startswith(given)] if len(given) >= _SHORTEST else []
    if given in begun or not begun:
        return given
    if len(begun) > 1:
        raise ConfigError(f"{given} begins several: {', '.join(begun[:5])}", hint="Type more of it.")
    return begun[0]
