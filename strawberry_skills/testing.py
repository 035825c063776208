"""The pytest fixture ``host``: a skill as a device hosts it, without a device, a broker and a model.

A call is read, checked and limited as one that comes over the bus; its result is what the bus would carry.
"""

import asyncio
import math
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta, tzinfo
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import pytest

from agent_core.skills.home import PresentCall
from agent_core.skills.loading.exposure import LoadProblem, expose, sentence_problems_of
from agent_core.skills.loading.loader import instance_of
from agent_core.skills.results import Publication, to_json
from agent_core.skills.running import triggers
from agent_core.skills.running.runner import RunnerSettings, SkillRunner
from agent_core.skills.settings import StoredSettings
from agent_core.skills.skill import Skill, SkillContext
from contracts.errors import CallError, ErrorCode
from contracts.wire import Json

__all__ = ["CallError", "Host", "HostedSkill", "host"]

_S = TypeVar("_S")
_T = TypeVar("_T")
_ROUNDS: Final = 20
"""Turns of the loop in which tasks that wait for each other come to rest."""


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be moved."""

    def __init__(self) -> None:
        super().__init__()
        self.moved_s = 0.0
        self._due: list[float] = []

    def time(self) -> float:
        return time.monotonic() + self.moved_s

    def call_at(self, when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        heappush(self._due, when)
        return super().call_at(when, *args, **options)

    def next_due(self, until: float) -> float | None:
        """Return the time of the next timer, each once; None if there is none until then."""
        return heappop(self._due) if self._due and self._due[0] <= until else None


class HostedSkill(Generic[_S]):
    """A skill that runs.

    Attributes:
        skill: The instance.
        folder: Its ``data_dir``.
        states: The values that it publishes, by name.
        events: The events that it has published, in order: name and payload.
        progress: What the last call has yielded.
        answers: What calls of other devices return, by ``kitchen.LampSkill.turn_on``.
        calls: Those calls, in order: path, arguments by position and by name.
    """

    def __init__(self, loop: _Loop, owner: type[_S], folder: Path, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.states: dict[str, Json] = {}
        self.events: list[tuple[str, Json]] = []
        self.progress: list[Json] = []
        self.answers: dict[str, Json] = {}
        self.calls: list[tuple[str, Json, Json]] = []
        self._loop = loop
        self._sink = triggers.LocalSink(self._publish)
        if settings and issubclass(owner, Skill) and owner.Settings is not None:
            StoredSettings(owner.Settings, folder, skill=owner.__name__, variables={}).change(settings)
        self.skill: _S = instance_of(owner, lambda _: SkillContext(folder, self._sink, home=self._answer))
        loaded, problems = expose(self.skill)
        problems += sentence_problems_of(loaded, owner.__name__)
        self._name = loaded.name
        # It has no loop of its own that could block, and each look costs a turn when the clock is moved.
        unwatched = RunnerSettings(blocked_s=math.inf)
        self._runner = SkillRunner([loaded], settings=unwatched, sink=self._sink)
        self._run(self._runner.__aenter__())
        if problems := problems + self._runner.problems:
            self.close()
            raise ValueError("; ".join(map(_text, problems)))
        self._run(self._rest())

    def call(self, method: str, *args: object, confirmed: bool = False, **kwargs: object) -> Any:
        """Call a method as the bus does, and return its result as JSON.

        Args:
            confirmed: Whether a person has confirmed the call.

        Raises:
            CallError: If there is no result; as its caller gets it.
        """
        self.progress = []

        async def report(value: Json) -> None:
            self.progress.append(value)

        by_position = [to_json(each) for each in args]
        by_name = {name: to_json(each) for name, each in kwargs.items()}
        return self._run(
            self._runner.run(self._name, method, by_position, by_name, confirmed=confirmed, progress=report)
        )

    def advance(self, **duration: float) -> None:
        """Move the clock of ``asyncio`` and of ``@every`` and ``@at``: ``advance(minutes=5)``.

        What is due meanwhile runs, one after the other.
        """
        until = self._loop.time() + timedelta(**duration).total_seconds()
        while (when := self._loop.next_due(until)) is not None:
            self._move_to(when)
        self._move_to(until)

    def tell_event(self, name: str, payload: Json = None) -> None:
        """Tell of an event, as ``@on_event`` waits for it."""
        self._sink.tell("event", name, payload)
        self._run(self._rest())

    def tell_value(self, path: str, value: Json) -> None:
        """Tell of a value of another skill, as ``@on_value`` waits for it."""
        self._sink.tell("value", path, value)
        self._run(self._rest())

    def close(self) -> None:
        self._run(self._runner.__aexit__(None, None, None))

    def _publish(self, publication: Publication) -> None:
        match publication.kind:
            case "state":
                self.states[publication.name] = publication.value
            case "clear":
                self.states.pop(publication.name, None)
            case "event":
                self.events.append((publication.name, publication.value))

    def _answer(
        self,
        skill: str,
        within: PresentCall,
        path: Sequence[str],
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> Future[Json]:
        name, answer = ".".join(path), Future[Json]()
        self.calls.append((name, to_json(list(args)), to_json(dict(kwargs))))
        if name in self.answers:
            answer.set_result(self.answers[name])
        else:
            answer.set_exception(CallError(ErrorCode.OFFLINE, "{name} has no answer", name=name))
        return answer

    def _move_to(self, when: float) -> None:
        self._loop.moved_s += max(0.0, when - self._loop.time())
        self._run(self._rest())

    async def _rest(self) -> None:
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
        await self._runner.threads_ended()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._loop.run_until_complete(work)


class Host:
    """Hosts skills for one test; see ``HostedSkill``."""

    def __init__(self, loop: _Loop, folder: Path) -> None:
        self._loop = loop
        self._folder = folder
        self._hosted: list[HostedSkill[Any]] = []

    def __call__(self, owner: type[_S], **settings: Any) -> HostedSkill[_S]:
        """Make and set up a skill.

        Args:
            settings: Values of its ``Settings``.

        Raises:
            ValueError: Something of it would not be offered, or its set-up failed.
        """
        hosted = HostedSkill(self._loop, owner, self._folder / owner.__name__, settings)
        self._hosted.append(hosted)
        return hosted

    def close(self) -> None:
        while self._hosted:
            self._hosted.pop().close()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Host skills as a device does: ``host(CoffeeSkill).call("brew", cups=2)``."""
    loop = _Loop()

    class _Moved(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(seconds=loop.moved_s)

    monkeypatch.setattr(triggers, "datetime", _Moved)
    hosting = Host(loop, tmp_path)
    yield hosting
    hosting.close()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def _text(problem: LoadProblem) -> str:
    return f"{problem.path}: {problem.message}" + (f" ({problem.hint})" if problem.hint else "")
