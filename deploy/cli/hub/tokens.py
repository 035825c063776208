"""``strawberry tokens``: make, list and revoke the tokens of programs."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from contracts.answers.people import TokenAnswer, TokenSummary
from contracts.errors import ConfigError, Forbidden, NotFound
from deploy.cli.client import HubClient, api, hub_of, whole_id
from deploy.cli.terminal.asking import is_sure
from deploy.cli.terminal.output import Output, moment
from deploy.cli.terminal.parser import Actions, days


def add(options: argparse.Namespace) -> None:
    """Make a token with which a program acts as you."""
    body = {"name": options.name, "scopes": scopes_of(options.scope or ["chat"])}
    answer = hub_of(options).post("/api/tokens", body | lifetime_of(options.days), TokenAnswer)
    Output(options.json).result(answer, text=answer.token)


def lifetime_of(days: int | None) -> dict[str, int]:
    # 0 days are a century.
    return {} if days is None else {"lifetime_s": (days or 36_500) * 24 * 60 * 60}


def scopes_of(texts: Sequence[str]) -> list[str]:
    # Texts such as ``chat`` and ``chat,call``.
    return [scope for text in texts for scope in text.replace(" ", ",").split(",") if scope]


def list_tokens(options: argparse.Namespace) -> None:
    """List your valid tokens, of programs and of browser sessions."""
    known = _tokens(hub_of(options), of_all=options.all)
    Output(options.json).rows(
        known,
        partial(_cells, of_all=options.all),
        empty="There is no token yet. 'strawberry tokens add NAME' makes one.",
    )


def revoke(options: argparse.Namespace) -> int:
    """Revoke a token at once."""
    client = hub_of(options)
    found = _found(options.token, _tokens(client)) or _found(options.token, _others(client))
    match found:
        case [token]:
            question = f"Revoke {token.name or token.jti}? Programs that use it are refused at once."
            if token.jti == client.token_id:
                question = (
                    "This is the token of this command line, which works again only after the hub has "
                    "restarted. Revoke it?"
                )
            if not is_sure(question, yes=options.yes):
                return 1
            client.request("DELETE", api("tokens", token.jti))
            Output(options.json).result(token, text=f"The token {token.name or token.jti} is revoked.")
            return 0
        case []:
            raise NotFound(
                f"there is no token {options.token!r}", hint="'strawberry tokens list' shows names and ids."
            )
        case _:
            raise ConfigError(
                f"{len(found)} tokens are named {options.token!r}",
                hint=f"Give an id: {', '.join(each.jti for each in found)}.",
            )


def _tokens(client: HubClient, *, of_all: bool = False) -> list[TokenSummary]:
    return client.get(f"/api/tokens?{'all' if of_all else 'valid'}=true", list[TokenSummary])


def _others(client: HubClient) -> list[TokenSummary]:
    try:
        return _tokens(client, of_all=True)
    except Forbidden:
        return []  # only admins see and revoke them


def _found(token: str, known: list[TokenSummary]) -> list[TokenSummary]:
    named = [each for each in known if each.name == token and each.kind == "user" and _is_valid(each)]
    if named and all(each.jti != token for each in known):
        return named
    jti = whole_id(token, [each.jti for each in known])
    return [each for each in known if each.jti == jti]


def _is_valid(token: TokenSummary) -> bool:
    return token.revoked_at is None and token.expires_at > datetime.now(UTC)


def _cells(token: TokenSummary, *, of_all: bool) -> dict[str, object]:
    return {
        "name": token.name or token.subject,
        **({"kind": token.kind} if of_all else {}),
        "scope": token.scope,
        "issued": moment(token.issued_at),
        "expires": moment(token.expires_at),
        **({"revoked": moment(token.revoked_at)} if of_all else {}),
        "id": token.jti,
    }


def add_tokens_actions(actions: Actions) -> None:
    """Declare 'strawberry tokens'."""
    command = actions.add_parser("add", run=add, hub=True)
    command.takes("name", "what the token is for, for example node-red")
    command.add_list(
        "--scope",
        "what it allows: chat, call, confirm, say_yes, admin or metrics; may be repeated, or chat,call; "
        "default chat",
    )
    command.takes(
        "--days", "days until it expires, or never (a hundred years); default 365", type=days, metavar="N"
    )
    command = actions.add_parser("list", run=list_tokens, hub=True)
    command.add_flag("--all", "tokens of all people and devices, also revoked and expired ones")
    command = actions.add_parser("revoke", run=revoke, hub=True)
    command.takes("token", "its name, or its id as 'tokens list' shows it, of which the beginning is enough")
    command.add_flag("--yes", "do not ask")
