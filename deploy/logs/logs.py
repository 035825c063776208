"""Logging of long-running processes, and the one filter that redacts secrets."""

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Final, TextIO, TypeVar

from contracts.tracing.correlation import ids
from deploy import limits
from deploy.logs.terminal import visible

_DOTTED: Final = re.compile(r"(?<![\w.-])[\w-]++(?:\.[\w-]*+)++")
"""Words joined by dots. Each character is read once however long the text is: the match starts only at the
beginning of a word and never backtracks."""

_JWT: Final = re.compile(r"eyJ[\w-]{8,}")
"""The beginning of a JSON object in base64url, as in the header of a JWT."""

_OTHERS: Final = re.compile(
    r"""
    [0-9a-f]{12}\.[\w-]{32}(?![\w-])         # an enrolment token: locator and secret
    | [2-9A-HJKMNP-Z]{4}(?:-[2-9A-HJKMNP-Z]{4}){3}(?![\w-])  # a one-time code for a password
    | (?<=Bearer\ )[\w.~+/-]++=*              # any other bearer token (RFC 6750)
    | (?<=/ollama/k/)[^/\s]+                  # the token in a path, however it is encoded
    | (?<=://)[^/@\s:]+:[^/@\s]+(?=@)         # user and password in a URL
    """,
    re.VERBOSE,
)
_REPLACEMENT: Final = "[secret]"

_PACKAGES: Final = (
    *("identity", "bus", "broker", "sandbox_host", "agent_core", "chat", "voice", "spoke", "tray", "deploy"),
    *("hub_registry", "hub_agent", "hub_live", "hub_home_assistant", "hub_server", "hub_web"),
    "strawberry_skills",
)


def redact(text: str) -> str:
    """Replace everything that looks like a secret, in time linear in the length of the text."""
    return _OTHERS.sub(_REPLACEMENT, _DOTTED.sub(_without_jwt, text))


def _without_jwt(dotted: re.Match[str]) -> str:
    words = dotted[0].split(".")
    for place, word in enumerate(words[:-2]):
        if header := _JWT.search(word):
            # Header, payload and signature, and whatever follows them.
            return ".".join([*words[:place], word[: header.start()] + _REPLACEMENT])
    return dotted[0]


class RedactingFormatter(logging.Formatter):
    """Formats a record, traceback included, and then redacts it.

    A logging filter would see the arguments before they are joined, and no traceback.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of logging
        """Return the line without a traceback; a line end in a foreign text must not look like a record."""
        line = super().formatMessage(record)
        if len(line) > limits.MAX_MESSAGE:
            line = f"{line[: limits.MAX_MESSAGE]}… ({len(line)} characters)"
        return line.replace("\r", "\\r").replace("\n", "\\n")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line to write; names and topics in it may come from anywhere."""
        text = super().format(record)
        if len(text) > limits.MAX_RECORD:
            text = f"{text[: limits.MAX_RECORD]}… ({len(text)} characters)"
        return visible(redact(text))


class JsonFormatter(RedactingFormatter):
    """Formats a record as one line of JSON, with the ids of what it is about; redacted likewise."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line to write."""
        made = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()[: limits.MAX_MESSAGE]),
            **ids(),
        }
        if record.exc_info:
            made["exception"] = redact(self.formatException(record.exc_info)[: limits.MAX_RECORD])
        return visible(json.dumps(made, ensure_ascii=False))


_Handler = TypeVar("_Handler", bound=logging.Handler)


def keep_lines(handler: _Handler) -> _Handler:
    """Attach a handler to what our packages log, whether or not it is also written; return it."""
    root = logging.getLogger()
    quiet = [logger for logger in map(logging.getLogger, _PACKAGES) if not logger.isEnabledFor(handler.level)]
    if quiet:
        for other in root.handlers:
            # What is written stays as it is.
            other.setLevel(max(other.level, root.level))
        for logger in quiet:
            logger.setLevel(handler.level)
    root.addHandler(handler)
    return handler


def set_up_logging(*, debug: bool, quiet: bool = False, as_json: bool = False) -> None:
    """Log to standard error: warnings, and ``INFO`` of our own packages.

    Args:
        debug: Log everything but the frames of WebSockets: they hold what people say, and writing
            a flood of them would keep the process busy.
        as_json: Write lines of JSON for a program that gathers logs.
        quiet: Log warnings only, for a command that reports progress itself.
    """
    handler = logging.StreamHandler(_own_stderr())
    text = RedactingFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.WARNING)
    if debug:
        for library in ("uvicorn.error", "websockets"):
            logging.getLogger(library).setLevel(logging.INFO)
    # nats-py begins TLS on a connection that is open: asyncio warns of it, without harm, when that ends.
    logging.getLogger("asyncio").addFilter(lambda record: "eof_received" not in str(record.msg))
    if not debug and not quiet:
        for package in _PACKAGES:
            logging.getLogger(package).setLevel(logging.INFO)


def _own_stderr() -> TextIO:
    """Return standard error by another descriptor: sounddevice takes 2 away while it looks for cards."""
    shown = sys.stderr
    try:
        own = os.dup(shown.fileno())
    except OSError:
        return shown  # it is no file: a test reads it
    return open(own, "w", buffering=1, encoding=shown.encoding, errors=shown.errors, closefd=False)
