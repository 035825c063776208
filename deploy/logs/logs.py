"""Logging of the processes that stay, and the one filter that keeps secrets out of it."""

import logging
import re
import sys
from typing import Final

from deploy.logs.terminal import visible

_SECRETS: Final = re.compile(
    r"""
    eyJ[\w-]{8,}\.[\w-]+\.[\w-]*              # a JWT: a JSON header, base64url, then two more parts
    | \b[0-9a-f]{12}\.[\w-]{32}(?![\w-])      # an enrolment token: locator and secret
    | (?<=Bearer\ )[\w.~+/-]+=*               # whatever else stands as a bearer (RFC 6750)
    | (?<=://)[^/@\s:]+:[^/@\s]+(?=@)         # user and password in a URL
    """,
    re.VERBOSE,
)
_REPLACEMENT: Final = "[secret]"
_OURS: Final = ("broker", "hub_registry", "hub_agent", "spoke", "sandbox_host", "agent_core", "deploy")


def redact(text: str) -> str:
    """Take everything that looks like a secret out of a text."""
    return _SECRETS.sub(_REPLACEMENT, text)


class RedactingFormatter(logging.Formatter):
    """Formats a record, traceback included, and then takes the secrets out.

    A filter of records would see arguments before they are joined, and tracebacks not at all.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Give the line that is written; names and topics in it may be anybody's."""
        return visible(redact(super().format(record)))


def set_up_logging(*, debug: bool, quiet: bool = False) -> None:
    """Log to standard error: warnings, and what matters of our own.

    Args:
        debug: Log everything there is.
        quiet: Log warnings only, where somebody else tells people what goes on.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.WARNING)
    if not debug and not quiet:
        for package in _OURS:
            logging.getLogger(package).setLevel(logging.INFO)
