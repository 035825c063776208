"""Why skills cannot be used now: the reason that is registered, without paths and secrets."""

import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from pydantic import BaseModel, SecretStr

from contracts import limits as contract_limits
from contracts.devices.registration import Unavailable, UnavailableKind
from contracts.errors import StrawberryError
from contracts.text import escaped, shortened, storable

_SECRETS: Final = re.compile(
    r"""
    (?P<url>(?<=://)[^/\s@]+(?=@))
    | (?P<name>(?:key|token|secret|password|passwd|appid|auth)["']?\s*[:=]\s*["']?)[^\s&"',;)]+
    | (?P<bearer>\bbearer\s+)\S+
    | (?<![\w-])[A-Za-z0-9_-]{32,}(?:\.[\w-]+)*
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Logins in addresses, values after the names of secrets, and runs of characters as long as a token's."""

_PATHS: Final = re.compile(r"(?<![\w:/.])(?:~?/|[A-Za-z]:[\\/])(?:[^\s'\"/\\]+[/\\])*([^\s'\"/\\]+)")


class SkillUnavailable(Exception):
    """Raised by the constructor or the set-up of a skill that lacks something.

    Attributes:
        reason: What is missing, in one line for the owner; it is shown in lists and to the model.
    """

    def __init__(self, reason: str, *, kind: UnavailableKind = "setup") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


def unavailable(
    kind: UnavailableKind,
    why: BaseException | str,
    *,
    folder: Path | None = None,
    secrets: Iterable[str] = (),
) -> Unavailable:
    """Make what is registered of a skill that failed.

    Args:
        kind: What failed; ``SkillUnavailable`` and a missing package say it themselves.
        why: What was raised, or the reason in one line.
        folder: The skill's file or folder, of which the line is named.
        secrets: Values that must not be shown.
    """
    if isinstance(why, SkillUnavailable):
        return Unavailable(kind=why.kind, reason=shown_reason(why.reason, secrets))
    if isinstance(why, ModuleNotFoundError):
        kind = "packages"
    text = why if isinstance(why, str) else explained(why, folder)
    return Unavailable(kind=kind, reason=shown_reason(text, secrets))


def shown_reason(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a reason as one short line, without paths and what looks like a secret."""
    text = without(secrets, text)
    text = _PATHS.sub(r"\1", " ".join(text[:4_000].split()))
    text = _SECRETS.sub(lambda found: f"{found['name'] or found['bearer'] or ''}…", text)
    return shortened(escaped(storable(text)), contract_limits.MAX_UNAVAILABLE_REASON)


def without(secrets: Iterable[str], text: str) -> str:
    for secret in filter(None, secrets):
        text = text.replace(secret, "…")
    return text


def traceback_of(error: BaseException, instance: object) -> str:
    """Return a traceback for the log, beginning on a new line, without the secrets of a skill."""
    return "\n" + without(secrets_of(instance), "".join(traceback.format_exception(error)).rstrip())


def explained(error: BaseException, entry: Path | None) -> str:
    """Return one line with the kind of an error and the line of the imported file that it comes from."""
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename or entry or '').name}, line {error.lineno}: {error.msg}"
    message = error.message if isinstance(error, StrawberryError) else f"{error}"
    text = f"{type(error).__name__}: {message}".rstrip(": ").partition("\n")[0]
    if entry is not None:
        root = str(entry.resolve())
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename.startswith(root):
                return f"{Path(frame.filename).name}, line {frame.lineno}: {text}"
    return text


def secrets_of(instance: object) -> list[str]:
    """Return the secrets in the settings of a skill, which no reason may show."""
    stored = getattr(instance, "stored_settings", None)
    try:
        return list(_secrets_in(stored.value)) if stored is not None else []
    except StrawberryError:  # some are missing
        return []


def _secrets_in(value: object) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
        return
    if isinstance(value, BaseModel):
        value = vars(value)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _secrets_in(each)


def folder_of(owner: type) -> Path | None:
    """Return the folder of the file that defines a class."""
    file = getattr(sys.modules.get(owner.__module__), "__file__", None)
    return Path(file).parent if file else None
