"""The models of this home: whether they answer, and where its Ollama is."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_core.models.entries import Model, ModelEntry, Models, choose, read_entries, read_keys
from agent_core.models.ollama import LocalModel, ollama_address, open_ollama
from agent_core.setup.probe import Probe, probe
from contracts.errors import GatewayError
from contracts.phrases import Phrase
from contracts.validation import validated


@dataclass(frozen=True)
class ConfiguredModel:
    """An entry of ``[[models]]`` and what is known of it.

    Attributes:
        tried: None where it was not asked.
        problem: Why it cannot be asked; empty where it can.
    """

    entry: ModelEntry
    tried: Probe | None = None
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as a program reads it."""
        made: dict[str, Any] = {
            "name": self.entry.name,
            "provider": self.entry.provider,
            "model": self.entry.model,
            "tools": self.entry.tools,
            "answers": None if self.tried is None else self.tried.answers,
            "detail": self.problem,
        }
        if self.problem:
            made["answers"] = False
        elif self.tried is not None:
            made["detail"] = self.tried.problem or f"{self.tried.first_s:.2g} s"
        return made


@dataclass(frozen=True)
class FoundOllama:
    """An Ollama and its models.

    Attributes:
        problem: Why it cannot be asked, with what to do; empty where it can.
    """

    address: str
    models: tuple[LocalModel, ...] = ()
    problem: str = ""


async def look_at(home: Path, environment: dict[str, str], *, ask: bool) -> list[ConfiguredModel]:
    """Look at the configured models, asking all of them at the same time.

    Raises:
        ConfigError: If ``strawberry.toml`` or ``.env`` cannot be used.
    """
    entries = read_entries(home)
    keys = read_keys(home, environment)
    async with asyncio.TaskGroup() as tasks:
        looking = [
            tasks.create_task(_look_at(entry, choose((entry,), keys, home=home), ask=ask))
            for entry in entries
        ]
    return [task.result() for task in looking]


async def _look_at(entry: ModelEntry, found: Models, *, ask: bool) -> ConfiguredModel:
    if not found.usable:
        return ConfiguredModel(entry, problem=_sentences(found.reason(entry.name), found.hint))
    (model,) = found.usable
    tried = await probe(model, tools=False) if ask else None
    return ConfiguredModel(model.entry, tried)


def ollamas_of(home: Path, environment: dict[str, str]) -> list[Model]:
    """Find where Ollama is asked: at the addresses of the entries, or where Ollama itself says.

    Each is given as a model of its, for its address and its key.

    Raises:
        ConfigError: If ``strawberry.toml``, ``.env`` or ``OLLAMA_HOST`` cannot be used.
    """
    keys = read_keys(home, environment)
    models = choose(read_entries(home), keys, home=home).usable
    found = {model.entry.address: model for model in models if model.entry.is_native_ollama}
    if not found:
        return [ollama_at(ollama_address(keys))]
    return list(found.values())


def ollama_at(address: str) -> Model:
    """Return the Ollama at an address in the form of a model of its; which one does not matter."""
    given = {"name": "ollama", "provider": "ollama", "model": "any", "base_url": address}
    return Model(validated(ModelEntry, given))


async def ask_ollamas(servers: Sequence[Model]) -> list[FoundOllama]:
    """Ask each Ollama for its models."""
    found = []
    for server in servers:
        address = server.entry.address
        async with open_ollama(address, server.key) as ollama:
            try:
                found.append(FoundOllama(address, tuple(await ollama.models())))
            except GatewayError as error:
                found.append(FoundOllama(address, problem=_sentences(error.message, error.hint)))
    return found


def _sentences(problem: str, hint: str) -> str:
    return Phrase("{problem}. {hint}", problem=problem, hint=hint) if hint else Phrase(problem)
