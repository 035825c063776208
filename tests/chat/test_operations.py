"""Operations that are called in their process."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from chat.http.streams import Connections
from chat.operations import CHANGE, Operations, Resource
from contracts.errors import NotFound


class Lamps:
    """Lamps that go on when they may."""

    def __init__(self) -> None:
        self.entered, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.lit: list[str] = []


lamps: Resource[Lamps, Any] = Resource("lamps", "/lamps")


@lamps.post(CHANGE, "/{lamp}/on")
async def turn_on(service: Lamps, asking: Any, lamp: str) -> None:
    service.entered.set()
    await service.may_go_on.wait()
    service.lit.append(lamp)


@lamps.post(CHANGE, "/{lamp}/try", is_held=True)
async def attempt(service: Lamps, asking: Any, lamp: str) -> None:
    await turn_on(service, asking, lamp)


class _Door:
    async def admit(self, *_: Any) -> Any:
        return None

    def recording(self, *_: Any) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.mark.parametrize(("operation", "done"), [(turn_on, ["desk"]), (attempt, [])])
async def test_a_change_ends_although_its_page_is_gone_unless_it_is_held(
    operation: Any, done: list[str]
) -> None:
    service, door = Lamps(), _Door()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        operations: Operations[Any] = Operations(door, Connections(tasks))
        operations.mount(lamps, service)
        page = tasks.create_task(operations.call(operation, door.admit, "desk"))
        await service.entered.wait()
        page.cancel()
        await asyncio.sleep(0)
        service.may_go_on.set()
        await asyncio.wait([page])
    assert page.cancelled()
    assert service.lit == done


@pytest.mark.parametrize("name", ["", "a/b"])
async def test_a_name_that_no_path_has_a_place_for_is_refused(name: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        operations: Operations[Any] = Operations(_Door(), Connections(tasks))
        operations.mount(lamps, Lamps())
        with pytest.raises(NotFound):
            await operations.call(turn_on, _Door().admit, name)
