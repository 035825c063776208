"""The ``[[models]]`` list of ``strawberry.toml`` and the keys that its entries need."""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator

from agent_core.models.ollama import ollama_address
from agent_core.models.providers import PROVIDERS, Provider
from contracts.addresses import host_of, is_loopback
from contracts.errors import ConfigError
from contracts.phrases import Phrase
from contracts.validation import VariableName, did_you_mean, explain, matching
from contracts.wire import Strict

LOCAL_ONLY: Final = "STRAWBERRY_LOCAL_MODELS_ONLY"
"""While this environment variable is set, only models on loopback are asked; tests set it."""

SETTINGS_FILE: Final = "strawberry.toml"
SETTINGS_LOCK: Final = RLock()
"""Held over reading, changing and writing it: a thread does so for other replicas."""
KEYS_FILE: Final = ".env"
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

ToolMode = Literal["code", "native"]
"""How a model acts: by writing Python that calls skills, or by calling skills as tools of its own."""


class ModelEntry(Strict):
    """One entry of ``[[models]]``; the entries are tried in their order.

    Attributes:
        name: What people call it; shown with each answer.
        base_url: Up to and with ``/v1`` for ``openai``. For ``ollama`` it is where Ollama listens; one
            that ends in ``/v1`` means its OpenAI-compatible API, which takes no ``num_ctx``.
        api_key_env: Variable that holds the key; None where the server asks for none.
        tools: ``native`` for small models, which write code badly.
        images: Whether it takes pictures; None where it is not known, so that it is asked.
        max_output_tokens: Most tokens of one answer.
        max_context_tokens: Most tokens of a context that Ollama is asked to make room for; each costs
            memory. None: as many as a prompt needs, up to what the model was trained for.
        first_token_s: Seconds that the first piece of an answer may take; a model that was idle has to be
            loaded first, which a slow machine needs more for.
        timeout_s: Seconds that the whole answer may take.
    """

    name: Annotated[
        str,
        matching(
            r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$",
            "at most 64 letters, digits, '_', '.' and '-', a letter or digit first",
        ),
    ]
    provider: str
    model: Annotated[str, Field(min_length=1)]
    base_url: str | None = None
    api_key_env: VariableName | None = None
    tools: ToolMode = "code"
    images: bool | None = None
    max_output_tokens: Annotated[int, Field(gt=0)] = 4096
    max_context_tokens: Annotated[int, Field(ge=1024)] | None = None
    first_token_s: Annotated[float, Field(gt=0)] = 15.0
    timeout_s: Annotated[float, Field(gt=0)] = 180.0

    @field_validator("provider")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in PROVIDERS:
            near = did_you_mean(name, PROVIDERS) or f"; there are {', '.join(PROVIDERS)}"
            raise ValueError(f"there is none called {name!r}{near}")
        return name

    @field_validator("base_url")
    @classmethod
    def _http(cls, url: str | None) -> str | None:
        if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
            raise ValueError("a base_url starts with http:// or https://")
        # Which host is asked, a browser's reading and Python's differ about.
        if url is not None and ("\\" in url or not url.isprintable()):
            raise ValueError("a base_url has no backslash and no control character")
        return url

    @model_validator(mode="after")
    def _fits_provider(self) -> Self:
        if self.base_url is not None and not self.about.takes_address:
            able = " and ".join(each.name for each in PROVIDERS.values() if each.takes_address)
            raise ValueError(f"base_url is only for {able}, not for {self.provider}")
        if self.max_context_tokens is not None and not self.is_native_ollama:
            raise ValueError("max_context_tokens is only for ollama, without /v1 in its base_url")
        return self

    @property
    def about(self) -> Provider:
        return PROVIDERS[self.provider]

    @property
    def key_variable(self) -> str | None:
        return self.api_key_env or self.about.key_variable or None

    @property
    def address(self) -> str:
        # Empty for the provider's own address.
        return (self.base_url or self.about.address).rstrip("/")

    @property
    def is_native_ollama(self) -> bool:
        return self.provider == "ollama" and not self.address.endswith("/v1")

    @property
    def on_loopback(self) -> bool:
        return is_loopback(host_of(self.address))


@dataclass(frozen=True)
class Model:
    """An entry that can be asked, with its key."""

    entry: ModelEntry
    key: SecretStr | None = None


GatewayKind = Literal["tensorzero", "direct"]
"""How models are asked; ``direct`` speaks to OpenAI-compatible servers only, without TensorZero."""


@dataclass(frozen=True)
class Models:
    """What can be asked, in order, and why the rest cannot.

    Attributes:
        problems: One line for each entry that is left out.
        hint: What to do about it.
    """

    usable: tuple[Model, ...] = ()
    problems: tuple[str, ...] = ()
    hint: str = ""

    def reason(self, name: str) -> str:
        return self._reasons.get(name, "")

    @property
    def _reasons(self) -> dict[str, str]:
        values = (Phrase(each).values for each in self.problems)
        return {each["model"]: each["reason"] for each in values}

    def only(self, names: Sequence[str]) -> "Models":
        """Return these of them, in this order; all of them where none is named."""
        if not names:
            return self
        usable = {model.entry.name: model for model in self.usable}
        known = self._reasons
        missing = [name for name in names if name not in usable]
        hint = self.hint
        if not known.keys() >= set(missing):
            hint = Phrase(
                "The entries of [[models]] are: {known}.", known=", ".join((*usable, *known)) or "none"
            )
        return Models(
            usable=tuple(usable[name] for name in names if name in usable),
            problems=tuple(
                left_out(name, known.get(name, Phrase("there is no such model"))) for name in missing
            ),
            hint=hint,
        )


def left_out(model: str, reason: str) -> Phrase:
    return Phrase("{model}: {reason}", model=model, reason=reason)


def choose(entries: tuple[ModelEntry, ...], keys: Mapping[str, str], *, home: Path) -> Models:
    """Return the entries that can be asked, and why others cannot.

    Args:
        entries: The configured ones, in order.
        keys: Values of variables, as ``read_keys`` gives them.
        home: ``STRAWBERRY_HOME``, for messages only.
    """
    local_only = bool(os.environ.get(LOCAL_ONLY))
    usable: list[Model] = []
    problems: list[str] = []
    hint = ""
    for configured in entries:
        is_found = configured.provider != "ollama" or configured.base_url is not None
        entry = configured if is_found else configured.model_copy(update={"base_url": ollama_address(keys)})
        variable = entry.key_variable
        if local_only and not entry.on_loopback:
            reason = Phrase("not asked, because {variable} is set", variable=LOCAL_ONLY)
            problems.append(left_out(entry.name, reason))
        elif variable and not keys.get(variable):
            problems.append(left_out(entry.name, Phrase("{variable} is not set", variable=variable)))
            hint = hint or Phrase("Add the line {name}=… to {file}.", name=variable, file=home / KEYS_FILE)
        else:
            usable.append(Model(entry, SecretStr(keys[variable]) if variable else None))
    if not entries:
        hint = Phrase(
            "Run 'strawberry setup' to add a model, or add a [[models]] entry to {file}. "
            "An admin can add one under Models.",
            file=home / SETTINGS_FILE,
        )
    return Models(tuple(usable), tuple(problems), hint)


def parse_entries(tables: object, *, file: Path) -> tuple[ModelEntry, ...]:
    """Parse the value of ``models`` in a settings file.

    Raises:
        ConfigError: If it is no list of tables, or an entry is wrong; names the entry and the field.
    """
    if tables is None:
        return ()
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(
            "{file}: models must be a list of tables", file=file, hint="Write each entry under [[models]]."
        )
    entries: list[ModelEntry] = []
    for number, table in enumerate(tables, start=1):
        try:
            entry = ModelEntry.model_validate(table)
        except ValidationError as error:
            raise ConfigError(
                "{file}: [[models]] number {number}: {reason}",
                file=file,
                number=number,
                reason=explain(error, ModelEntry),
                fields=", ".join(ModelEntry.model_fields),
                hint="Settings of a model: {fields}.",
            ) from None
        if any(entry.name == other.name for other in entries):
            raise ConfigError(
                "{file}: two models are named {name!r}",
                file=file,
                name=entry.name,
                hint="Give each its own name.",
            )
        entries.append(entry)
    return tuple(entries)


def read_entries(home: Path) -> tuple[ModelEntry, ...]:
    """Read the list from ``strawberry.toml``; empty where the file or the list is missing.

    Raises:
        ConfigError: If the file cannot be read, is not TOML, or an entry is wrong.
    """
    return parse_entries(read_tables(home).get("models"), file=home / SETTINGS_FILE)


def read_tables(home: Path) -> dict[str, Any]:
    """Read ``strawberry.toml``; empty where it is missing.

    Raises:
        ConfigError: If the file cannot be read or is not TOML.
    """
    file = home / SETTINGS_FILE
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            "{file} is not TOML: {error}", file=file, error=error, hint="Correct that line."
        ) from None


def read_keys(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return all variables: those of ``.env`` in ``home``, overridden by those of the environment.

    A line is ``NAME=value``; ``export`` in front, quotes around the value and ``#`` lines are taken
    as a shell takes them.

    Raises:
        ConfigError: If the file cannot be read or a line is no assignment; never shows the line.
    """
    file = home / KEYS_FILE
    try:
        lines = file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None
    values: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ConfigError(
                "{file}, line {number}: not an assignment", file=file, number=number, hint="Write NAME=value."
            )
        values[name.strip()] = _unquoted(value.strip())
    return {**values, **{name: value for name, value in environment.items() if value}}


def read_variable(home: Path, name: str) -> str:
    """Return the value of a variable that settings name.

    Raises:
        ConfigError: If it is not set, or ``.env`` cannot be read.
    """
    value = read_keys(home, os.environ).get(name)
    if not value:
        raise ConfigError(
            "{name} is not set", name=name, file=home / KEYS_FILE, hint="Add the line {name}=… to {file}."
        )
    return value


def filled(home: Path, text: str) -> str:
    """Put the values of variables where ``${NAME}`` stands.

    Raises:
        ConfigError: If one is not set, or ``.env`` cannot be read.
    """
    return _VARIABLE.sub(lambda found: read_variable(home, found[1]), text)


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value.partition(" #")[0].rstrip()


def _unreadable(file: Path, error: Exception) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
    return ConfigError(
        "{file} cannot be read: {reason}", file=file, reason=reason, hint="Check the file and its owner."
    )
