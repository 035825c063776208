"""``strawberry setup``: models, or Home Assistant, are chosen, tried and written down."""

import argparse
import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Final, get_args

from pydantic import SecretStr, ValidationError

from agent_core.models.entries import Model, ModelEntry, ToolMode, choose, read_entries, read_keys
from agent_core.models.ollama import ADDRESS_VARIABLE, LocalModel, ollama_address
from agent_core.models.providers import PROVIDERS, Provider
from agent_core.setup.looking import ask_ollamas, ollama_at
from agent_core.setup.probe import Probe, probe, with_loading_time
from agent_core.setup.writing import own_variable, unused_name, with_time, write_entry, write_key
from contracts.errors import ConfigError, LinkError
from contracts.validation import explain
from deploy import limits
from deploy.cli.setup.models import pull_model
from deploy.cli.terminal.asking import agreed, typed_unseen
from deploy.cli.terminal.output import Output, note, waiting
from deploy.cli.terminal.parser import Parser
from deploy.directory import Home

_UNWRITTEN: Final = "Nothing was written; --no-test writes it anyway."
_FLAGS: Final = "For example: strawberry setup --provider ollama --model qwen3:4b"
_HOME_ASSISTANT: Final = "http://homeassistant.local:8123"
_HOME_ASSISTANT_FLAGS: Final = (
    f"For example: strawberry setup home-assistant --url {_HOME_ASSISTANT} --token-stdin"
)
_TRIED: Final = (
    "Home Assistant {version}: {exposed} of {entities} entities are exposed to Assist; {used} are used.\n"
)
_TOKEN: Final = "Long-lived access token, which is not shown (your profile in Home Assistant, Security): "  # noqa: S105


class _Ended(Exception):
    """The person gives no further answers."""


def setup(options: argparse.Namespace) -> None:
    """Choose a model, try it, and write strawberry.toml and .env.

    Without options it asks for everything. A key is never an argument: type it unseen, name its
    environment variable with --key-env, or give it on standard input with --key-stdin.
    """
    home = Home.find()
    if options.provider is not None:
        _add_as_told(home, options)
    elif options.model is not None or options.name is not None or options.base_url is not None:
        raise ConfigError("no --provider given", hint=_FLAGS)
    elif options.json or not sys.stdin.isatty():
        raise ConfigError("setup asks questions, and there is no terminal to answer them", hint=_FLAGS)
    else:
        _converse(home)


def _add_as_told(home: Home, options: argparse.Namespace) -> None:
    if not options.model:
        raise ConfigError("no --model given", hint=_FLAGS)
    variables = read_keys(home.directory, os.environ)
    base_url = options.base_url or _ollama_elsewhere(options.provider, variables)
    asked = (options.provider, options.model, base_url)
    # The same again is the same entry.
    there = (e.name for e in read_entries(home.directory) if (e.provider, e.model, e.base_url) == asked)
    name = options.name or next(there, "") or unused_name(home.directory, options.model)
    entry = _entry(
        {
            "name": name,
            "provider": options.provider,
            "model": options.model,
            "base_url": base_url,
            "api_key_env": options.key_env
            or PROVIDERS[options.provider].key_of(
                options.base_url, own_variable(name) if options.key_stdin else None
            ),
            "tools": options.tools,
        }
    )
    model = _with_key(home, entry, variables, from_stdin=options.key_stdin)
    local = None
    if model.entry.is_native_ollama:
        (found,) = asyncio.run(ask_ollamas([model]))
        if found.problem and not options.no_test:
            raise ConfigError(found.problem, hint=_UNWRITTEN)
        local = _named(found.models, model.entry.model)
    if options.tools is None and local is not None and local.is_small:
        entry = entry.model_copy(update={"tools": "native"})
    tried = None if options.no_test else _try(model)
    if tried is not None and not tried.serves:
        raise ConfigError(tried.problem or f"{entry.name}: {tried.advice}", hint=_UNWRITTEN)
    entry = with_time(entry, tried)
    _write(home, entry, model.key)
    told = {"name": entry.name, "tools": entry.tools, "tried": asdict(tried) if tried else None}
    said = f"{entry.name}: {_result(tried)}\n" if tried is not None else ""
    Output(options.json).result(told, text=said + _what_next(home))


def _converse(home: Home) -> None:
    configured = read_entries(home.directory)
    if configured:
        note(f"Set up already: {', '.join(entry.name for entry in configured)}.")
    note("Models are asked in the order in which you add them; the next one answers where one cannot.")
    added: list[str] = []
    try:
        while True:
            choices = ", ".join(f"{each.name} ({each.about})" for each in PROVIDERS.values())
            provider = _ask(f"Provider: {choices}; empty to end")
            if not provider:
                break
            if provider not in PROVIDERS:
                note(f"  There is no {provider}.")
                continue
            entry = _add_by_asking(home, PROVIDERS[provider])
            if entry is not None:
                added.append(entry.name)
    except _Ended:
        note("")
    if not added:
        note("Nothing was added. Sentences of skills work without a model, too.")
        return
    print(_what_next(home))


def _add_by_asking(home: Home, provider: Provider) -> ModelEntry | None:
    """Ask for one model, try it, and write it; None where it was not written."""
    variables = read_keys(home.directory, os.environ)
    base_url, local = None, None
    if provider.is_local:
        try:
            given = _ask("Address of Ollama", default=ollama_address(variables))
            variables = {**variables, ADDRESS_VARIABLE: given}
            base_url = _ollama_elsewhere(provider.name, variables)
        except ConfigError as error:
            note(f"  {error.message}. {error.hint}")
            return None
        local = _choose_local(ollama_at(ollama_address(variables)))
        if local is None:
            return None
        model_name = local.name
    else:
        if provider.address_hint:
            base_url = _ask(f"Address: {provider.address_hint}") or None
        if base_url and (offered := _offered(base_url)):
            note(f"  It has: {', '.join(offered)}")
        model_name = _ask("Model, as the provider calls it", needed=True)
    name = _ask("Name, as you call it", default=unused_name(home.directory, model_name))
    fields: dict[str, object] = {
        "name": name,
        "provider": provider.name,
        "model": model_name,
        "base_url": base_url,
        "api_key_env": provider.key_of(base_url, None if provider.is_local else own_variable(name)),
    }
    if local is not None and local.is_small:
        fields["tools"] = "native"
    try:
        entry = _entry(fields)
    except ConfigError as error:
        note(f"  {error.message}. {error.hint}")
        return None
    key = _ask_key(entry, variables, needed=base_url is None)
    if key is None:
        entry = entry.model_copy(update={"api_key_env": None})
    tried = _try(_located(entry, key, home, variables))
    note(f"  {_result(tried)}")
    if not tried.serves and not agreed("  Write it all the same?"):
        return None
    entry = with_time(entry, tried)
    _write(home, entry, key)
    return entry


def _choose_local(server: Model) -> LocalModel | None:
    """Ask which of Ollama's models to use, or which one to download."""
    # Questions are asked outside of the event loop, which would keep a Ctrl-C to itself.
    (found,) = asyncio.run(ask_ollamas([server]))
    if found.problem:
        note(f"  {found.problem}")
        return None
    for model in found.models:
        note(f"  {model.name}{'  (cannot call tools)' if model.calls_tools is False else ''}")
    able = [model.name for model in found.models if model.calls_tools is not False]
    name = _ask(
        "Model; another name gets it from Ollama's library",
        default=able[0] if able else PROVIDERS["ollama"].suggested,
    )
    chosen = _named(found.models, name)
    if chosen is None and agreed(f"  Ollama does not have {name}. Get it now?"):
        asyncio.run(pull_model(server.entry.address, server.key, name))
        (found,) = asyncio.run(ask_ollamas([server]))
        chosen = _named(found.models, name)
    return chosen


def _ollama_elsewhere(provider: str, variables: dict[str, str]) -> str | None:
    """Return the address of an Ollama that is not where it is by default.

    It goes into the entry: a hub that starts as a service does not see this terminal's variables.
    """
    if provider != "ollama":
        return None
    address = ollama_address(variables)
    return address if address != PROVIDERS[provider].address else None


def _offered(base_url: str) -> list[str]:
    """Return the models that a server lists to anyone who asks."""
    import httpx

    with suppress(httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError):
        answer = httpx.get(f"{base_url.rstrip('/')}/models", timeout=limits.MODEL_LIST_TIMEOUT_S).json()
        return [str(each["id"]) for each in answer["data"][: limits.MOST_MODELS_OFFERED]]
    return []


def _named(models: tuple[LocalModel, ...], name: str) -> LocalModel | None:
    return next((model for model in models if model.name in (name, f"{name}:latest")), None)


def _entry(fields: dict[str, object]) -> ModelEntry:
    try:
        return ModelEntry.model_validate({key: value for key, value in fields.items() if value is not None})
    except ValidationError as error:
        raise ConfigError(
            explain(error, ModelEntry), hint="strawberry setup --help lists the options."
        ) from None


def _with_key(home: Home, entry: ModelEntry, variables: dict[str, str], *, from_stdin: bool) -> Model:
    """Find the key of an entry where no other user can see it.

    Raises:
        ConfigError: If it needs one and there is none.
    """
    variable = entry.key_variable
    if variable is None:
        if from_stdin:
            raise ConfigError(
                f"{entry.provider} takes no key", hint="Leave --key-stdin out, or add --key-env."
            )
        return _located(entry, None, home, variables)
    value = sys.stdin.readline().strip() if from_stdin else variables.get(variable, "")
    if not value:
        raise ConfigError(
            f"{variable} is not set", hint="Set it, or give the key on standard input with --key-stdin."
        )
    return _located(entry, SecretStr(value), home, variables)


def _located(entry: ModelEntry, key: SecretStr | None, home: Home, variables: dict[str, str]) -> Model:
    """Make the model that is tried: with its key, and with the address where Ollama is."""
    given = {
        **variables,
        **({entry.key_variable: key.get_secret_value()} if key and entry.key_variable else {}),
    }
    models = choose((entry,), given, home=home.directory)
    if not models.usable:
        raise ConfigError("; ".join(models.problems), hint=models.hint)
    return models.usable[0]


def _ask_key(entry: ModelEntry, variables: dict[str, str], *, needed: bool) -> SecretStr | None:
    variable = entry.key_variable
    if variable is None:
        return None
    if variables.get(variable):
        note(f"  The key in {variable} is used.")
        return SecretStr(variables[variable])
    optional = "" if needed else "; empty if it asks for none"
    while True:
        typed = typed_unseen(f"Key, which is not shown{optional}: ").strip()
        if typed or not needed:
            return SecretStr(typed) if typed else None


def _try(model: Model) -> Probe:
    """Try a model, with time enough to load it first."""
    tried = with_loading_time(model)
    name, at_most = tried.entry.name, tried.entry.first_token_s
    with waiting(f"waiting for the first word of {name}, {at_most:.0f} s at most; a local model loads first"):
        return asyncio.run(probe(tried))


def _write(home: Home, entry: ModelEntry, key: SecretStr | None) -> None:
    # The key first: an entry without its key is one that is named as a problem at each start.
    if key is not None and entry.key_variable is not None:
        write_key(home.directory, entry.key_variable, key)
    write_entry(home.directory, entry)


def _result(tried: Probe) -> str:
    if tried.problem:
        return f"It does not answer: {tried.problem}"
    can = {"calls": " and calls tools", "prints": "", "none": "", "untried": ""}[tried.tools]
    return f"It answers after {tried.first_s:.2g} s{can}. {tried.advice}".strip()


def _what_next(home: Home) -> str:
    server, start = ("spoke", "spoke run") if home.is_spoke_alone else ("hub", "up")
    applied = f"A running {server} uses it from the next message on; strawberry {start} starts one."
    return (
        f"Written to {home.directory / 'strawberry.toml'}. {applied}\n"
        "Then try it: strawberry chat 'what can you do?'"
    )


def _ask(question: str, *, default: str = "", needed: bool = False) -> str:
    """Ask for a line.

    Raises:
        _Ended: If there will be no more answers.
    """
    shown = f"{question} [{default}]: " if default else f"{question}: "
    while True:
        print(shown, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise _Ended
        if line.strip() or not needed:
            return line.strip() or default
        note("  This needs an answer; Ctrl-D ends.")


def setup_home_assistant(options: argparse.Namespace) -> None:
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
    url = (options.url or "").strip()
    if not url and asks:
        with suppress(_Ended):
            present = read_access_table(home).url
            url = _ask("Address of Home Assistant", default=present or _HOME_ASSISTANT)
    if not url:
        raise ConfigError("no --url given", hint=_HOME_ASSISTANT_FLAGS)
    table = read_access_table(home, url)
    if options.token_stdin:
        token = sys.stdin.readline().strip()
    elif asks:
        token = typed_unseen(_TOKEN).strip()
    else:
        raise ConfigError("no token given", hint=_HOME_ASSISTANT_FLAGS)
    checked, found = check_token(token), None
    try:
        if not options.no_test:
            with waiting(f"asking {url}"):
                found = asyncio.run(try_home_assistant(home, url, checked))
    except LinkError as error:
        raise ConfigError(error.message, hint=_UNWRITTEN) from None
    write_home_assistant(home, url, checked)
    used = "these" if table.expose == "assist" else "all"
    said = _TRIED.format(used=used, **vars(found)) if found else ""
    Output(options.json).result(
        {"url": url, "tried": vars(found) if found else None},
        text=f"{said}Written to {home.directory / 'strawberry.toml'}. A running hub uses it at once.",
    )


def register_setup(parser: Parser) -> None:
    """Declare 'strawberry setup'."""
    parser.runs(setup)
    others = parser.add_subparsers(metavar="[COMMAND]", required=False, help="connect something else")
    parser.takes("--provider", "add a model of this provider without asking", choices=tuple(PROVIDERS))
    parser.takes("--model", "model name at the provider")
    parser.takes("--name", "your name for it; default: made from the model name")
    parser.takes("--base-url", "address of an OpenAI-compatible server, or of Ollama", metavar="URL")
    parser.takes("--key-env", "environment variable that holds the key", metavar="VARIABLE")
    parser.add_flag("--key-stdin", "read the key from standard input")
    parser.takes(
        "--tools",
        "how it calls skills; default: native for small models of Ollama, else code",
        choices=get_args(ToolMode),
    )
    parser.add_flag("--no-test", "write it without trying it first")
    command = others.add_parser("home-assistant", run=setup_home_assistant)
    command.takes("--url", "address, as http://homeassistant.local:8123")
    command.add_flag("--token-stdin", "read the token from standard input")
    command.add_flag("--no-test", "write it without trying it first")
