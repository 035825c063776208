"""The house that the programs in these tests call."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from contracts.errors import CallError, ErrorCode
from sandbox_host import Deadline, PoolSettings, RunLimits, RunResult, Session, open_pool


class House:
    """Answers calls as devices would, and remembers them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Any], dict[str, Any]]] = []
        self.answers: dict[str, Callable[..., Awaitable[Any]]] = {}

    @property
    def paths(self) -> list[str]:
        return [path for path, _, _ in self.calls]

    async def __call__(self, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.calls.append((path, args, kwargs))
        if path not in self.answers:
            raise CallError(ErrorCode.UNKNOWN_SKILL, f"nothing is called {path}", hint="search for it")
        return await self.answers[path](*args, **kwargs)

    def knows(self, path: str, value: Any) -> None:
        async def answer(*args: Any, **kwargs: Any) -> Any:
            return value

        self.answers[path] = answer


async def run(
    session: Session,
    house: House,
    *programs: str,
    limits: RunLimits | None = None,
    deadline: Deadline | None = None,
) -> RunResult:
    """Run programs one after the other; give the result of the last one."""
    for program in programs:
        result = await session.run(program, house, limits=limits, deadline=deadline)
    return result


@contextmanager
def deadline_from(house: House, seconds: float) -> Iterator[Deadline]:
    """Give a deadline whose clock runs from the program's call of ``device.Clock.start()`` on."""
    deadline = Deadline(seconds)
    with ExitStack() as before:
        before.enter_context(deadline.paused())

        async def start() -> None:
            before.close()

        house.answers["device.Clock.start"] = start
        yield deadline


async def run_alone(settings: PoolSettings, house: House, *programs: str) -> RunResult:
    """Run programs in a new interpreter."""
    async with open_pool(settings) as pool:
        return await run(await pool.session("conversation"), house, *programs)
