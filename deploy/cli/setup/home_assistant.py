"""``strawberry setup home-assistant``: its address and token, tried and written down."""

import argparse
import asyncio
import sys
from typing import Final

from contracts.errors import ConfigError, LinkError
from deploy.cli.terminal.asking import typed_unseen
from deploy.cli.terminal.output import Output, waiting
from deploy.directory import Home

_DEFAULT: Final = "http://homeassistant.local:8123"
_FLAGS: Final = f"For example: strawberry setup home-assistant --url {_DEFAULT} --token-stdin"
_TRIED: Final = (
    "Home Assistant {version}: {exposed} of {entities} entities are exposed to Assist; {used} are used.\n"
)
_TOKEN: Final = "Long-lived access token, which is not shown (your profile in Home Assistant, Security): "  # noqa: S105


def setup(options: argparse.Namespace) -> None:
    """Connect Home Assistant, for its entities.

    Asks for the address of Home Assistant and a long-lived access token, tries them, and writes them to
    strawberry.toml and .env.
    """
    from deploy.home.home_assistant import (
        check_token,
        read_access_table,
        try_home_assistant,
        write_home_assistant,
    )

    home = Home.find()
    asks = not options.json and sys.stdin.isatty()
    url = (options.url or (_ask(read_access_table(home).url) if asks else "")).strip()
    if not url:
        raise ConfigError("no --url given", hint=_FLAGS)
    table = read_access_table(home, url)
    if options.token_stdin:
        token = sys.stdin.readline().strip()
    elif asks:
        token = typed_unseen(_TOKEN).strip()
    else:
        raise ConfigError("no token given", hint=_FLAGS)
    checked, found = check_token(token), None
    try:
        if not options.no_test:
            with waiting(f"asking {url}"):
                found = asyncio.run(try_home_assistant(home, url, checked))
    except LinkError as error:
        hint = "Nothing was written; --no-test writes it anyway."
        raise ConfigError(error.message, hint=hint) from None
    write_home_assistant(home, url, checked)
    used = "these" if table.expose == "assist" else "all"
    said = _TRIED.format(used=used, **vars(found)) if found else ""
    Output(options.json).result(
        {"url": url, "tried": vars(found) if found else None},
        text=f"{said}Written to {home.directory / 'strawberry.toml'}. A running hub uses it at once.",
    )


def _ask(present: str | None) -> str:
    shown = present or _DEFAULT
    print(f"Address of Home Assistant [{shown}]: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() or shown
