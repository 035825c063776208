"""Models: their order and settings, trying one, keys, and models in Ollama; and their page."""

import os
import re
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, SecretStr

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
from agent_core.setup.looking import FoundOllama, ask_ollamas, ollama_at, ollamas_of
from agent_core.setup.probe import ToolUse, probe, with_loading_time
from agent_core.setup.writing import own_variable, with_time, write_entries, write_key
from chat.operations import ADMIN, Needs, Resource
from contracts.addresses import Endpoint, endpoint
from contracts.errors import ConfigError, InvalidMessage, NotFound, StrawberryError
from contracts.phrases import Phrase
from contracts.validation import WebAddress
from contracts.wire import OrAbsent, Part, Phrased, PhraseText, Strict
from hub_registry.access.bearer import Bearer
from hub_server import limits

_KEY_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,63}\Z")
_KEY_END: Final = "_API_KEY"
_PULLED: Final = re.compile(r"(?:(?P<host>[\w.:-]+)/)?(?:[\w.-]+/)?[\w.-]+(?::[\w.-]+)?\Z", re.ASCII)
_LIBRARIES: Final = ("hf.co", "huggingface.co", "ollama.com", "registry.ollama.ai")
"""Where Ollama may get a model from. From any other host it would fetch what an address in the house says."""


class ModelEntries(Strict):
    """All entries, in the order in which they are asked."""

    entries: Annotated[list[ModelEntry], Field(max_length=50)]


class ModelTest(Strict):
    """What is tried: an entry by its name, or one that was not written yet, with its key.

    Attributes:
        key: None for the one that is stored.
    """

    name: str | None = None
    entry: ModelEntry | None = None
    key: SecretStr | None = None


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


@dataclass(frozen=True)
class ModelFiles:
    """Where the entries of models and their keys are written.

    Attributes:
        home: Directory with ``strawberry.toml`` and ``.env``.
        entered: By variable, the token by which a key was written, and when.
    """

    home: Path
    gateway: LiveGateway
    entered: dict[str, tuple[str, float]] = field(default_factory=dict)

    def settings(self) -> ModelSettings:
        entries = read_entries(self.home)
        keys = read_keys(self.home, os.environ)
        models = choose(entries, keys, home=self.home)
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
            file=str(self.home / SETTINGS_FILE),
            # Those of the environment have precedence over what is written here.
            fixed_keys=sorted(name for name in self.variables() if os.environ.get(name)),
        )

    async def require_bound(self, bearer: Bearer, entries: Sequence[ModelEntry]) -> None:
        """Require that stored keys, and what people say, go where they went before, or the password again.

        A key that the same session has entered in the last minutes it knows anyway.
        """
        keys, bound = read_keys(self.home, os.environ), _places(read_entries(self.home))
        bound |= {(each.key_variable, each.address) for each in PROVIDERS.values()}
        for variable, _ in _places(entries) - bound:
            jti, at = self.entered.get(variable or "", ("", 0.0))
            is_own = jti == bearer.claims.jti and time.monotonic() - at < limits.PASSWORD_ENTERED_S
            if not is_own and (variable is None or keys.get(variable)):
                await bearer.require_password()

    def variables(self) -> set[str]:
        """Name the variables that entries and providers take a key from."""
        named = {entry.key_variable for entry in read_entries(self.home)}
        return {each for each in named if each} | {
            each.key_variable for each in PROVIDERS.values() if each.key_variable
        }

    def located(self, entry: ModelEntry, key: SecretStr | None) -> Model:
        keys = read_keys(self.home, os.environ)
        if key is not None and entry.key_variable is not None:
            keys[entry.key_variable] = key.get_secret_value()
        found = choose((entry,), keys, home=self.home)
        if not found.usable:
            raise InvalidMessage(Phrase.joined("; ", found.problems), hint=found.hint)
        return found.usable[0]

    def reload(self) -> None:
        """Ask other models from the next message on, without waiting for the look at the files."""
        models: Models = choose(read_entries(self.home), read_keys(self.home, os.environ), home=self.home)
        self.gateway.reload(models, kind=self.gateway.kind)


models: Resource[ModelFiles, Bearer] = Resource("models", "/api")


@models.get(Needs(("chat",), devices=True), "/models")
async def list_models(files: ModelFiles, asking: Bearer) -> ModelStates:
    """List the models that are asked, in this order.

    `state` is `ready` or `skipped`, `problems` says why entries are left out.
    """
    return ModelStates(models=files.gateway.states(), problems=list(files.gateway.models.problems))


@models.get(ADMIN, "/models/settings")
async def show_settings(files: ModelFiles, asking: Bearer) -> ModelSettings:
    """Return the entries; `fixed_keys` are set in the hub's environment, which has precedence."""
    return files.settings()


@models.put(ADMIN, "/models")
async def write_models(files: ModelFiles, asking: Bearer, wanted: ModelEntries) -> ModelSettings:
    """Write `[[models]]` of `strawberry.toml` with these entries in this order; comments stay.

    The next message asks them.
    """
    names = [entry.name for entry in wanted.entries]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InvalidMessage("two models are named {name!r}", name=min(twice), hint="Give each its own name.")
    await files.require_bound(asking, wanted.entries)
    write_entries(files.home, wanted.entries)
    files.reload()
    return files.settings()


@models.post(ADMIN, "/models/test", is_held=True)
async def try_model(files: ModelFiles, asking: Bearer, wanted: ModelTest) -> TriedModel:
    """Try an entry by its `name`, or an `entry` that is not written, with its `key`.

    `tools` is `calls`, `prints`, `none` or `untried`, `first_token_s` what its entry should allow.
    """
    if wanted.entry is not None:
        entry = wanted.entry
    else:
        found = (each for each in read_entries(files.home) if each.name == wanted.name)
        entry = next(found, None) or _unknown(wanted.name)
    if wanted.key is None:
        await files.require_bound(asking, [entry])
    model = files.located(entry, wanted.key)
    tried = await probe(with_loading_time(model), kind=files.gateway.kind)
    return TriedModel(
        **vars(tried),
        serves=tried.serves,
        advice=tried.advice,
        first_token_s=with_time(entry, tried).first_token_s,
    )


@models.put(ADMIN, "/models/keys/{name}")
async def set_key(
    files: ModelFiles,
    asking: Bearer,
    name: str,
    key: Annotated[SecretStr, Field(min_length=1, max_length=4_000)],
) -> None:
    """Write a variable of `.env`; its name ends in `_API_KEY` or is named by an entry.

    No route returns a key.
    """
    if not _KEY_NAME.match(name) or not (name.endswith(_KEY_END) or name in files.variables()):
        raise InvalidMessage(
            "{name!r} is not the variable of a key",
            name=name[:80],
            end=_KEY_END,
            hint="It ends in {end}, or is one that an entry names as api_key_env.",
        )
    write_key(files.home, name, key)
    if not os.environ.get(name):
        files.entered[name] = asking.claims.jti, time.monotonic()
    files.reload()


@models.get(ADMIN, "/ollama")
async def list_ollamas(
    files: ModelFiles, asking: Bearer, address: WebAddress | None = None
) -> list[FoundOllama]:
    """List each Ollama of the settings, with its models.

    Args:
        address: Of another one, which is asked in their place.
    """
    servers = ollamas_of(files.home, dict(os.environ)) if address is None else [ollama_at(address)]
    return await ask_ollamas(servers)


@models.stream(ADMIN, "/ollama/pull", method="POST")
async def pull(
    files: ModelFiles,
    asking: Bearer,
    name: Annotated[str, Field(min_length=1, max_length=200)],
    address: str | None = None,
) -> AsyncIterator[PullEvent]:
    """Download a model into an Ollama.

    The last event has `done` or `error`. Closing the stream stops the download, which goes on from there the
    next time.

    Args:
        address: One that `GET /api/ollama` lists, by default the first.
    """
    named = _PULLED.match(name)
    # The first of two parts is a person, the first of three a host.
    is_hosted = name.count("/") > 1 or bool(named and re.search(r"[.:]", named["host"] or ""))
    if named is None or (is_hosted and named["host"] not in _LIBRARIES):
        raise InvalidMessage(
            "{name!r} is no name in a library", name=name, hint="For example qwen3:4b, or hf.co/NAME/MODEL."
        )
    servers = ollamas_of(files.home, dict(os.environ))
    server = next((each for each in servers if address in (None, each.entry.address)), None)
    if server is None:
        raise NotFound("this is not the address of an Ollama in the settings", hint="GET /api/ollama")
    return _steps(server, name)


def _places(entries: Iterable[ModelEntry]) -> set[tuple[str | None, Endpoint | str]]:
    """Return the origins that entries ask beyond this machine or with a key, each with its variable."""
    asked = (each for each in entries if each.key_variable or not each.on_loopback)
    return {(each.key_variable, endpoint(each.address) or each.address) for each in asked}


def _unknown(name: str | None) -> ModelEntry:
    raise NotFound("there is no model {name!r}", name=name, hint="GET /api/models/settings lists them.")


async def _steps(server: Model, name: str) -> AsyncIterator[PullEvent]:
    yield PullEvent(status="", completed=0, total=0)
    last = ""
    try:
        async with (
            open_ollama(server.entry.address, server.key) as ollama,
            aclosing(ollama.pull(name)) as steps,
        ):
            async for step in steps:
                last = step.status
                yield PullEvent(**vars(step))
        if last != "success":
            raise ConfigError(
                "Ollama stopped before {name} was complete", name=name, hint="Pull it again to go on."
            )
    except StrawberryError as error:
        yield PullEvent(error=PullError(message=error.message, hint=error.hint))
        return
    yield PullEvent(done=True)
