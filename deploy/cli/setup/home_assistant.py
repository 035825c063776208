"""``strawberry setup home-assistant``: its address and token, tried and written down."""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr, ValidationError

from contracts.errors import ConfigError, StrawberryError
from deploy.cli.terminal.asking import typed_unseen
from deploy.cli.terminal.output import Output, waiting
from deploy.directory import Home
from deploy.settings.settings import HomeAssistantTable, read_table

if TYPE_CHECKING:
    from hub_agent.settings import HomeAssistantAccess

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
    from deploy.home.home_assistant import access, write_home_assistant

    home = Home.find()
    present = read_table(home, "home_assistant", HomeAssistantTable) or HomeAssistantTable()
    asks = not options.json and sys.stdin.isatty()
    url = (options.url or (_ask(present.url) if asks else "")).strip()
    if not url:
        raise ConfigError("no --url given", hint=_FLAGS)
    try:
        table = HomeAssistantTable.model_validate({**present.model_dump(), "url": url})
    except ValidationError:
        raise ConfigError(f"{url!r} is no address of Home Assistant", hint=_FLAGS) from None
    if options.token_stdin:
        token = sys.stdin.readline().strip()
    elif asks:
        token = typed_unseen(_TOKEN).strip()
    else:
        raise ConfigError("no token given", hint=_FLAGS)
    if not token.isascii() or not token:
        raise ConfigError(
            "this is not a token: it is empty, or has letters that no token has", hint="Copy it again."
        )
    found = None
    if not options.no_test:
        with waiting(f"asking {url}"):
            found = asyncio.run(_try(access(home, table, url, SecretStr(token))))
    write_home_assistant(home.directory, url, SecretStr(token), variable=table.token_env)
    used = "these" if table.expose == "assist" else "all"
    said = _TRIED.format(used=used, **found) if found else ""
    Output(options.json).result(
        {"url": url, "tried": found},
        text=f"{said}Written to {home.directory / 'strawberry.toml'}. A running hub uses it at once.",
    )


async def _try(access: "HomeAssistantAccess") -> dict[str, Any]:
    """Log in, and count the entities.

    Raises:
        ConfigError: If it is not there, or refuses the token.
    """
    from hub_home_assistant.inward.connection import open_connection
    from hub_home_assistant.inward.registry import read_registries

    try:
        async with open_connection(access) as connection:
            ids = {each["entity_id"] for each in await connection.ask("get_states")}
            exposed = (await read_registries(connection)).exposed
            shown = len(ids if exposed is None else ids & exposed)
            return {"version": connection.version, "entities": len(ids), "exposed": shown}
    except StrawberryError as error:
        hint = "Nothing was written; --no-test writes it anyway."
        raise ConfigError(error.message, hint=hint) from None


def _ask(present: str | None) -> str:
    shown = present or _DEFAULT
    print(f"Address of Home Assistant [{shown}]: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() or shown
