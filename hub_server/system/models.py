"""Models over HTTP: their order and settings, trying one, keys, and models in Ollama."""

import os
import re
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, SecretStr
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from agent_core.gateway.opening import LiveGateway, ModelState
from agent_core.models.entries import (
    SETTINGS_FILE,
    Model,
    ModelEntry,
    Models,
    choose,
    read_entries,
    read_keys,
)
from agent_core.models.ollama import open_ollama
from agent_core.models.providers import PROVIDERS
from agent_core.setup.looking import FoundOllama, ask_ollamas, ollamas_of
from agent_core.setup.probe import ToolUse, probe, with_loading_time
from agent_core.setup.writing import own_variable, with_time, write_entries, write_key
from chat.http.requests import Answer, NoBody, answer, read
from chat.http.streams import Connections, EventStream, event, farewell
from contracts.addresses import Endpoint, endpoint
from contracts.errors import ConfigError, InvalidMessage, NotFound, StrawberryError
from contracts.phrases import Phrase
from contracts.wire import OrAbsent, Part, Phrased, PhraseText, Strict
from hub_registry.access.bearer import Gate
from hub_server import limits

_KEY_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,63}\Z")
_KEY_END: Final = "_API_KEY"
_PULLED: Final = re.compile(r"(?:(?P<host>[\w.:-]+)/)?(?:[\w.-]+/)?[\w.-]+(?::[\w.-]+)?\Z", re.ASCII)
_LIBRARIES: Final = ("hf.co", "huggingface.co", "ollama.com", "registry.ollama.ai")
"""Where Ollama may get a model from. From any other host it would fetch what an address in the house says."""


class ModelEntries(Strict):
    """All entries, in the order in which they are asked."""

    entries: Annotated[list[ModelEntry], Field(max_length=50)]


class _Test(Strict):
    """What is tried: an entry by its name, or one that was not written yet, with its key.

    Attributes:
        key: None for the one that is stored.
    """

    name: str | None = None
    entry: ModelEntry | None = None
    key: SecretStr | None = None


class _Key(Strict):
    """A key; it is written down and never shown again."""

    key: Annotated[SecretStr, Field(min_length=1, max_length=4_000)]


class _Pull(Strict):
    """A model to download; ``address`` is one of those that `GET /api/ollama` lists, by default the first."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    address: str | None = None


class ModelStates(Part):
    """The models that are asked, in this order, and why others are not."""

    models: list[ModelState]
    problems: list[str]


class PullError(Part):
    """Why a model was not downloaded."""

    message: str
    hint: str


class PullEvent(Part):
    """A step of a download, see `PullStep`; the last one has ``done`` or ``error``."""

    status: OrAbsent[str] = None
    digest: OrAbsent[str] = None
    completed: OrAbsent[int] = None
    total: OrAbsent[int] = None
    error: OrAbsent[PullError] = None
    done: OrAbsent[bool] = None


class TriedModel(Phrased):
    """What came of trying a model, see `Probe`; and the time that it needs to begin."""

    problem: PhraseText
    tools: ToolUse
    first_s: float
    seconds: float
    serves: bool
    advice: PhraseText
    first_token_s: float


class ModelProvider(Part):
    """A provider that an entry may name."""

    name: str
    about: str
    address: str
    key_variable: str
    needs_key: bool


class ShownModelEntry(ModelEntry, Phrased):
    """An entry, whether its key is there, and why it is not asked."""

    # A field of its name would hide the property.
    variable: str | None = Field(alias="key_variable")
    has_key: bool
    problem: PhraseText


class ModelSettings(Part):
    """The entries with what a form for them needs, and the keys that the environment holds."""

    entries: list[ShownModelEntry]
    providers: list[ModelProvider]
    file: str
    fixed_keys: list[str]


class ModelRoutes:
    """The routes of models.

    Args:
        home: Directory with ``strawberry.toml`` and ``.env``.
    """

    def __init__(self, home: Path, gateway: LiveGateway, gate: Gate, *, connections: Connections) -> None:
        self._home = home
        self._gateway = gateway
        self._gate = gate
        self._connections = connections
        self._entered: dict[str, tuple[str, float]] = {}

    def routes(self) -> list[BaseRoute]:
        """Make the routes."""
        return [
            Route("/api/models", self._states),
            Route("/api/models", self._write, methods=["PUT"]),
            Route("/api/models/settings", self._settings),
            Route("/api/models/test", self._test, methods=["POST"]),
            Route("/api/models/keys/{name}", self._write_key, methods=["PUT"]),
            Route("/api/ollama", self._ollamas),
            Route("/api/ollama/pull", self._pull, methods=["POST"]),
        ]

    async def _states(self, request: Request) -> Answer[ModelStates]:
        await self._gate.require("chat")(request)
        return answer(
            ModelStates(models=self._gateway.states(), problems=list(self._gateway.models.problems))
        )

    async def _settings(self, request: Request) -> Answer[ModelSettings]:
        await self._gate.require_admin(request)
        return answer(self._shown())

    async def _write(self, request: Request) -> Answer[ModelSettings]:
        await self._gate.require_admin(request)
        body = await read(request, ModelEntries)
        names = [entry.name for entry in body.entries]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise InvalidMessage(
                "two models are named {name!r}", name=min(twice), hint="Give each its own name."
            )
        await self._require_bound(request, body.entries)
        write_entries(self._home, body.entries)
        self._reload()
        return answer(self._shown())

    async def _test(self, request: Request) -> Answer[TriedModel]:
        bearer = await self._gate.require_admin(request)
        body = await read(request, _Test)
        if body.entry is not None:
            entry = body.entry
        else:
            found = (each for each in read_entries(self._home) if each.name == body.name)
            entry = next(found, None) or _unknown(body.name)
        if body.key is None:
            await self._require_bound(request, [entry])
        model = self._located(entry, body.key)
        async with self._connections.hold(request.receive, token=bearer.claims.jti) as client:
            tried = await probe(with_loading_time(model), kind=self._gateway.kind)
            return answer(
                TriedModel(
                    problem=tried.problem,
                    tools=tried.tools,
                    first_s=tried.first_s,
                    seconds=tried.seconds,
                    serves=tried.serves,
                    advice=tried.advice,
                    first_token_s=with_time(entry, tried).first_token_s,
                )
            )
        return farewell(client)

    async def _write_key(self, request: Request) -> NoBody:
        bearer = await self._gate.require_admin(request)
        name, body = request.path_params["name"], await read(request, _Key)
        if not _KEY_NAME.match(name) or not (name.endswith(_KEY_END) or name in self._variables()):
            raise InvalidMessage(
                "{name!r} is not the variable of a key",
                name=name[:80],
                end=_KEY_END,
                hint="It ends in {end}, or is one that an entry names as api_key_env.",
            )
        write_key(self._home, name, body.key)
        if not os.environ.get(name):
            self._entered[name] = bearer.claims.jti, time.monotonic()
        self._reload()
        return NoBody()

    async def _ollamas(self, request: Request) -> Answer[list[FoundOllama]]:
        await self._gate.require_admin(request)
        return answer(await ask_ollamas(ollamas_of(self._home, dict(os.environ))))

    async def _pull(self, request: Request) -> EventStream:
        bearer = await self._gate.require_admin(request)
        body = await read(request, _Pull)
        named = _PULLED.match(body.name)
        # The first of two parts is a person, the first of three a host.
        is_hosted = body.name.count("/") > 1 or bool(named and re.search(r"[.:]", named["host"] or ""))
        if named is None or (is_hosted and named["host"] not in _LIBRARIES):
            raise InvalidMessage(
                "{name!r} is no name in a library",
                name=body.name,
                hint="For example qwen3:4b, or hf.co/NAME/MODEL.",
            )
        servers = ollamas_of(self._home, dict(os.environ))
        server = next((each for each in servers if body.address in (None, each.entry.address)), None)
        if server is None:
            raise NotFound("this is not the address of an Ollama in the settings", hint="GET /api/ollama")
        steps = _steps(server, body.name)
        return EventStream(steps, connections=self._connections, token=bearer.claims.jti)

    def _shown(self) -> ModelSettings:
        entries = read_entries(self._home)
        keys = read_keys(self._home, os.environ)
        models = choose(entries, keys, home=self._home)
        return ModelSettings(
            entries=[
                ShownModelEntry(
                    **vars(entry),
                    key_variable=entry.key_variable,
                    has_key=bool(entry.key_variable and keys.get(entry.key_variable)),
                    problem=models.reason(entry.name),
                )
                for entry in entries
            ],
            providers=[
                ModelProvider(
                    name=each.name,
                    about=each.about,
                    address=each.address,
                    key_variable=each.key_variable or own_variable(each.name),
                    needs_key=bool(each.key_variable),
                )
                for each in PROVIDERS.values()
            ],
            file=str(self._home / SETTINGS_FILE),
            # Those of the environment have precedence over what is written here.
            fixed_keys=sorted(name for name in self._variables() if os.environ.get(name)),
        )

    async def _require_bound(self, request: Request, entries: Sequence[ModelEntry]) -> None:
        """Require that stored keys, and what people say, go where they went before, or the password again.

        A key that the same session has entered in the last minutes it knows anyway.
        """
        bearer = await self._gate.require_admin(request)
        keys, bound = read_keys(self._home, os.environ), _places(read_entries(self._home))
        bound |= {(each.key_variable, each.address) for each in PROVIDERS.values()}
        for variable, _ in _places(entries) - bound:
            jti, at = self._entered.get(variable or "", ("", 0.0))
            is_own = jti == bearer.claims.jti and time.monotonic() - at < limits.PASSWORD_ENTERED_S
            if not is_own and (variable is None or keys.get(variable)):
                await self._gate.require_password(request)

    def _variables(self) -> set[str]:
        """Name the variables that entries and providers take a key from."""
        named = {entry.key_variable for entry in read_entries(self._home)}
        return {each for each in named if each} | {
            each.key_variable for each in PROVIDERS.values() if each.key_variable
        }

    def _located(self, entry: ModelEntry, key: SecretStr | None) -> Model:
        keys = read_keys(self._home, os.environ)
        if key is not None and entry.key_variable is not None:
            keys[entry.key_variable] = key.get_secret_value()
        found = choose((entry,), keys, home=self._home)
        if not found.usable:
            raise InvalidMessage(Phrase.joined("; ", found.problems), hint=found.hint)
        return found.usable[0]

    def _reload(self) -> None:
        """Ask other models from the next message on, without waiting for the look at the files."""
        models: Models = choose(read_entries(self._home), read_keys(self._home, os.environ), home=self._home)
        self._gateway.reload(models, kind=self._gateway.kind)


def _places(entries: Iterable[ModelEntry]) -> set[tuple[str | None, Endpoint | str]]:
    """Return the origins that entries ask beyond this machine or with a key, each with its variable."""
    asked = (each for each in entries if each.key_variable or not each.on_loopback)
    return {(each.key_variable, endpoint(each.address) or each.address) for each in asked}


def _unknown(name: str | None) -> ModelEntry:
    raise NotFound("there is no model {name!r}", name=name, hint="GET /api/models/settings lists them.")


async def _steps(server: Model, name: str) -> AsyncGenerator[bytes, None]:
    """Yield the steps of a pull as events."""
    yield event(PullEvent(status="", completed=0, total=0))
    last = ""
    try:
        async with (
            open_ollama(server.entry.address, server.key) as ollama,
            aclosing(ollama.pull(name)) as steps,
        ):
            async for step in steps:
                last = step.status
                yield event(PullEvent(**vars(step)))
        if last != "success":
            raise ConfigError(
                "Ollama stopped before {name} was complete", name=name, hint="Pull it again to go on."
            )
    except StrawberryError as error:
        yield event(PullEvent(error=PullError(message=error.message, hint=error.hint)))
        return
    yield event(PullEvent(done=True))
