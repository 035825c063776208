"""``strawberry models``: which models there are, and getting one."""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any

from pydantic import SecretStr

from agent_core.gateway.opening import ModelState
from agent_core.models.ollama import ADDRESS_VARIABLE, LocalModel, PullStep, ollama_address, open_ollama
from agent_core.sentences.responses import bytes_text, duration_text
from agent_core.setup.looking import FoundOllama, ask_ollamas, look_at, ollamas_of
from contracts.errors import ConfigError, GatewayError, StrawberryError
from contracts.wire import Part
from deploy import limits
from deploy.cli.client import find_hub, find_nearest
from deploy.cli.terminal.output import Output, note, progress_line, table, waiting
from deploy.cli.terminal.parser import Actions
from deploy.directory import Home
from deploy.logs.terminal import visible


class _Models(Part):
    models: list[ModelState]


def list_models(options: argparse.Namespace) -> None:
    """List the models, whether they answer, and those in Ollama."""
    home, environment = Home.find(), dict(os.environ)
    with waiting("asking the models"), _ended_at_once():
        configured = asyncio.run(look_at(home.directory, environment, ask=not options.no_ask))
        ollamas = asyncio.run(ask_ollamas(ollamas_of(home.directory, environment)))
    skipped = _skipped(home)
    rows = [{**model.as_dict(), "skipped": skipped.get(model.entry.name)} for model in configured]
    for row in rows:
        row["detail"] = "; ".join(filter(None, (row["detail"], row["skipped"])))
    Output(options.json).rows(
        rows,
        lambda row: {heading: value for heading, value in row.items() if heading != "skipped"},
        empty="No model is configured. Run 'strawberry setup' to add one.",
        answer={"models": rows, "ollama": ollamas},
    )
    for each in () if options.json else ollamas:
        print(f"\nOllama at {each.address}")
        print(visible(_ollama_text(each)))


@contextmanager
def _ended_at_once() -> Iterator[None]:
    """End the process at Ctrl-C, also while a gateway is imported or closed: what only asks leaves nothing.

    asyncio waits until its loop turns again, and an exception that comes into the import is a panic there.
    """

    def end(*_: object) -> None:
        print(file=sys.stderr, flush=True)
        os._exit(130)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _skipped(home: Home) -> dict[str, str]:
    """Return why and for how long the running spoke or hub skips models, by name."""
    skipped: dict[str, str] = {}
    for find in (find_nearest, find_hub):
        with suppress(StrawberryError):
            server = find(home)
            answer = server.get("/api/models", _Models, timeout=limits.SKIPPED_MODELS_TIMEOUT_S)
            for each in answer.models:
                if each.state == "skipped":
                    why = f"skipped by the {server.server} for {each.skipped_s} s: it {each.detail}"
                    skipped[each.name] = why
    return skipped


def pull(options: argparse.Namespace) -> None:
    """Download a model into Ollama.

    Downloads a model into Ollama. After Ctrl-C the same command continues.
    """
    asyncio.run(_pull(options))


async def _pull(options: argparse.Namespace) -> None:
    if not options.name.strip():
        raise ConfigError("no model is named", hint="For example: strawberry models pull qwen3:4b")
    server = ollamas_of(Home.find().directory, dict(os.environ))[0]
    address = ollama_address({ADDRESS_VARIABLE: options.ollama}) if options.ollama else server.entry.address
    size = await pull_model(address, None if options.ollama else server.key, options.name)
    Output(options.json).result(
        {"model": options.name, "address": address, "bytes": size},
        text=f"{options.name} is there ({bytes_text(size)}). Use it: strawberry setup "
        f"--provider ollama --model {options.name}",
    )


async def pull_model(address: str, key: SecretStr | None, name: str) -> int:
    """Download a model with an Ollama and show the progress; return the size of its files in bytes.

    Raises:
        NotFound: If the library has no such model.
        GatewayError: If nothing answers, or the pull failed.
    """
    progress = Progress()
    last: PullStep | None = None
    with progress_line() as show:
        try:
            async with open_ollama(address, key) as ollama, aclosing(ollama.pull(name)) as steps:
                async for step in steps:
                    show(progress.text(step, time.monotonic()))
                    if not sys.stderr.isatty() and (last is None or step.status != last.status):
                        note(step.status)
                    last = step
        except asyncio.CancelledError:
            show("")
            note("Stopped. The same command continues from here.")
            raise
    if last is None or last.status != "success":
        raise GatewayError(
            f"Ollama stopped before {name} was complete", hint="Run the same command to continue."
        )
    return progress.bytes_total


class Progress:
    """Follows the steps of one pull, file by file.

    Attributes:
        bytes_total: Bytes of all files that were seen so far.
    """

    def __init__(self) -> None:
        self._digest = ""
        self._samples: deque[tuple[float, int]] = deque()
        self._totals: dict[str, int] = {}

    @property
    def bytes_total(self) -> int:
        return sum(self._totals.values())

    def text(self, step: PullStep, now: float) -> str:
        """Return a step in words.

        Args:
            now: Seconds of a clock that never goes back.
        """
        if not step.total:
            return step.status
        if step.digest != self._digest:
            self._digest = step.digest
            self._samples.clear()
        self._totals[step.digest] = step.total
        # What was there before this pull is in the first sample, so that it makes no rate.
        self._samples.append((now, step.completed))
        while len(self._samples) > 2 and now - self._samples[0][0] > limits.DOWNLOAD_RATE_S:
            self._samples.popleft()
        share = f"{100 * step.completed // step.total:3d} %"
        parts = [f"{step.status} {share}, {bytes_text(step.completed)} of {bytes_text(step.total)}"]
        rate = self._rate()
        if rate > 0 and step.completed < step.total:
            left = (step.total - step.completed) / rate
            parts += [f"{bytes_text(rate)}/s", f"{duration_text(max(1, round(left)))} left"]
        return ", ".join(parts)

    def _rate(self) -> float:
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        return (last - first) / (ended - began) if ended > began else 0.0


def _ollama_text(found: FoundOllama) -> str:
    if found.problem:
        return f"  {found.problem}"
    if not found.models:
        return "  It has no models yet: strawberry models pull qwen3:4b"
    headings = ["model", "size", "parameters", "quantisation", "context", "tools", "in memory"]
    return table([_ollama_row(model) for model in found.models], headings)


def _ollama_row(model: LocalModel) -> list[str]:
    can: dict[Any, str] = {True: "yes", False: "no", None: "unknown"}
    return [
        model.name,
        bytes_text(model.size),
        model.parameters,
        model.quantization,
        str(model.context_length or ""),
        can[model.calls_tools],
        f"context {model.loaded_context}" if model.loaded_context else "",
    ]


def add_models_actions(actions: Actions) -> None:
    """Declare 'strawberry models'."""
    command = actions.add_parser("list", run=list_models)
    command.add_flag("--no-ask", "do not try whether each answers")
    command = actions.add_parser("pull", run=pull)
    command.takes("name", "name in Ollama's library, for example qwen3:4b")
    command.takes(
        "--ollama", "address of Ollama; default: from strawberry.toml, or OLLAMA_HOST", metavar="ADDRESS"
    )
