"""``strawberry tokens``: make, list and revoke the tokens of programs."""

import argparse
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from contracts.errors import ConfigError, NotFound
from deploy.cli.client import HubClient, hub_of
from deploy.cli.terminal.asking import agreed
from deploy.cli.terminal.output import Output, note
from deploy.cli.terminal.tables import moment

_SCOPES: Final = ("chat", "call", "confirm", "admin")
_COLUMNS: Final = ("name", "scope", "issued", "expires", "id")
_ALL_COLUMNS: Final = ("name", "kind", "scope", "issued", "expires", "revoked", "id")


def add(options: argparse.Namespace) -> None:
    """Make a token with which a program acts as the user who asks."""
    scopes = [scope for scope in options.scope.replace(" ", ",").split(",") if scope]
    for scope in scopes:
        if scope not in _SCOPES:
            raise ConfigError(
                f"unknown scope {scope!r}",
                hint="Use one or more of chat, call, confirm and admin, for example chat,call.",
            )
    answer: dict[str, Any] = hub_of(options).request(
        "POST", "/api/tokens", {"name": options.name, "scopes": scopes}
    )
    Output(options.json).result(answer, text=answer["token"])


def list_tokens(options: argparse.Namespace) -> None:
    """Print the valid tokens of programs, or all tokens there ever were."""
    known = _tokens(hub_of(options))
    Output(options.json).rows(
        known if options.all else [each for each in known if _is_of_a_program(each)],
        _ALL_COLUMNS if options.all else _COLUMNS,
        empty="There is no token yet. 'strawberry tokens add NAME' makes one.",
        shown=_shown,
    )


def revoke(options: argparse.Namespace) -> int:
    """Revoke a token by its name or id; programs that use it are refused at once."""
    client = hub_of(options)
    known = _tokens(client)
    found = [each for each in known if each["jti"] == options.token] or [
        each for each in known if each["name"] == options.token and _is_of_a_program(each)
    ]
    match found:
        case [token]:
            if token["jti"] == client.token_id and not agreed(
                "This is the token of this command line, which works again only after the hub has restarted. "
                "Revoke it?"
            ):
                note("Nothing was changed.")
                return 1
            client.request("DELETE", f"/api/tokens/{quote(token['jti'], safe='')}")
            Output(options.json).result(token, text=f"The token {token['name'] or token['jti']} is revoked.")
            return 0
        case []:
            raise NotFound(
                f"there is no token {options.token!r}", hint="'strawberry tokens list' shows names and ids."
            )
        case _:
            raise ConfigError(
                f"{len(found)} tokens are named {options.token!r}",
                hint=f"Give an id: {', '.join(each['jti'] for each in found)}.",
            )


def _tokens(client: HubClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.request("GET", "/api/tokens")
    return found


def _is_of_a_program(token: dict[str, Any]) -> bool:
    """Whether it was made for a program and is valid; devices and broker logins are listed elsewhere."""
    valid = token["revoked_at"] is None and datetime.fromisoformat(token["expires_at"]) > datetime.now(UTC)
    return valid and token["kind"] == "user"


def _shown(token: dict[str, Any]) -> dict[str, Any]:
    return {
        **token,
        "id": token["jti"],
        "name": token["name"] or token["subject"],
        "issued": moment(token["issued_at"]),
        "expires": moment(token["expires_at"]),
        "revoked": moment(token["revoked_at"]),
    }
