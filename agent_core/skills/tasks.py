"""Background tasks of a skill: logged and started again where they fail, ended with the skill."""

import asyncio
import inspect
import logging
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_core.skills.availability import explained
from agent_core.skills.skill_loop import OwnedTasks, contained
from contracts.rates import Backoff

Start = Callable[..., Coroutine[Any, Any, object]]


@dataclass(eq=False, kw_only=True)
class SkillTasks(OwnedTasks):
    """The tasks of one skill, in its loop.

    Attributes:
        skill: Its name.
        call: Calls a function in the loop of the skill, from any thread.
        folder: Of the skill, to name the line that failed.
        report: Takes the name of a task and what it raised; None once it runs steadily again.
        retry_s: First and longest wait before a task that failed starts again.
        steady_s: A task that runs for so long has recovered.
    """

    skill: str
    call: Callable[..., object]
    folder: Path | None
    hide: Callable[[str], str]
    report: Callable[[str, BaseException | None], None]
    retry_s: tuple[float, float]
    steady_s: float

    def run(self, work: Start, *args: Any, name: str = "") -> None:
        """Run a coroutine function until the skill ends; again after a growing wait where it fails.

        Raises:
            TypeError: It is no ``async def`` function.
        """
        if inspect.iscoroutine(work):
            work.close()
            raise TypeError("pass the function, as in self.task(self.watch): it may have to start again")
        if not inspect.iscoroutinefunction(work):
            raise TypeError(f"a task is an async def function, not {work!r}")
        name = name or work.__name__
        self.call(lambda: self.start(self._repeat(work, args, name), name=name))

    async def _repeat(self, work: Start, args: tuple[Any, ...], name: str) -> None:
        backoff = Backoff(*self.retry_s, jitter=0)
        has_failed = False
        while True:
            began = time.monotonic()
            try:
                working = work(*args)  # with wrong arguments it fails here
                running = self.start(contained(working), name=name)
                running.add_done_callback(lambda _, begun=working: begun.close())  # type: ignore[misc]
                if has_failed:
                    await asyncio.wait({running}, timeout=self.steady_s)
                    if not running.done():
                        has_failed = False
                        self.report(name, None)
                await running
                if has_failed:
                    self.report(name, None)
                return
            except Exception as error:  # noqa: BLE001 - the author's code; the other tasks go on
                if time.monotonic() - began > self.steady_s:
                    backoff.reset()
                wait_s = backoff.next()
                text = explained(error, self.folder)
                if not has_failed:
                    text += "\n" + "".join(traceback.format_exception(error)).rstrip()
                log = logging.getLogger(f"strawberry.skills.{self.skill}")
                log.error("the task %s failed and starts again in %.0f s: %s", name, wait_s, self.hide(text))
                has_failed = True
                self.report(name, error)
            await asyncio.sleep(wait_s)
