"""The page *Home* as each person has arranged it: ``/api/home``."""

import logging
from typing import Final

from pydantic import ValidationError
from sqlmodel import Session

from chat.operations import LOOK, Resource
from contracts.answers.people import HomeLayout
from hub_registry.access.bearer import Bearer
from hub_registry.registry import Registry
from hub_registry.storage.tables import HomeLayoutRow

_log: Final = logging.getLogger(__name__)

home: Resource[Registry, Bearer] = Resource("home", "/api/home")


@home.get(LOOK)
async def show_home(registry: Registry, asking: Bearer) -> HomeLayout:
    """Show how you arranged your *Home*: its cards in their order, starred, hidden and renamed."""
    user = asking.user.id
    row = await registry.store.read(lambda session: session.get(HomeLayoutRow, user))
    try:
        return HomeLayout.model_validate_json(row.layout) if row is not None else HomeLayout()
    except ValidationError:
        _log.warning("the layout of %s's Home cannot be read, and is not used", user)
        return HomeLayout()


@home.put(LOOK)
async def arrange_home(registry: Registry, asking: Bearer, layout: HomeLayout) -> HomeLayout:
    """Arrange your *Home*; an empty list of cards resets it."""
    row = HomeLayoutRow(user=asking.user.id, layout=layout.model_dump_json(exclude_defaults=True))

    def work(session: Session) -> None:
        session.merge(row)

    await registry.store.write(work)
    return layout
