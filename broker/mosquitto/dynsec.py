"""Mosquitto's dynamic security over a link: commands with their answers, and what the broker holds."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from broker.limits import COMMAND_BYTES_AT_ONCE, COMMANDS_AT_ONCE, LISTED_AT_ONCE
from broker.mosquitto.commands import Ask, Client, Command, CommandResult, DefaultAccess, Group, Role
from bus.link import Link, Message
from contracts import topics
from contracts.errors import Conflict, Disconnected, Forbidden, LinkError, NotFound, StrawberryError

__all__ = ["DynamicSecurity", "DynsecState"]

_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")

_NO_PLUGIN: Final = (
    "Add to mosquitto.conf the lines 'plugin …/mosquitto_dynamic_security.so' and 'plugin_opt_config_file …' "
    "of the project's example, make the file with 'mosquitto_ctrl dynsec init', and restart Mosquitto."
)


@dataclass(frozen=True)
class DynsecState:
    """Clients and roles by name, as the broker holds them."""

    clients: dict[str, Client]
    roles: dict[str, Role]


class DynamicSecurity:
    """Speaks to the plugin as one login that may; entered with ``async with``.

    Never lets its own login be changed: that would end the connection it is spoken over.

    Args:
        link: Without a topic prefix, logged in with a role for ``$CONTROL/dynamic-security/#``.
        timeout_s: How long one message's answer may take.
    """

    def __init__(self, link: Link, *, timeout_s: float = 10.0) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._numbers = count(1)
        self._pending: dict[str, asyncio.Future[CommandResult]] = {}
        self._leave: list[Callable[[], Awaitable[None] | None]] = []

    async def __aenter__(self) -> Self:
        try:
            unsubscribe = await self._link.subscribe(topics.DYNAMIC_SECURITY_ANSWER, self._arrived)
        except Forbidden:
            raise _not_allowed() from None
        self._leave = [unsubscribe, self._link.on_disconnected(self._lost)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lost()
        for leave in self._leave:
            done = leave()
            if done is not None:
                await done

    async def change(self, commands: Sequence[Command]) -> None:
        """Run commands in order, many in one message.

        Raises:
            NotFound: If one names a client or role that is not there.
            Conflict: If one makes what is there already.
            LinkError: If the plugin refuses one otherwise, or does not answer.
            Disconnected: If the connection is lost meanwhile; some may have been done.
        """
        for answer in await self.ask(commands):
            if answer.error is not None:
                raise _explained(answer)

    async def ask(self, commands: Sequence[Command]) -> list[CommandResult]:
        """Send commands and give the answer to each; an answer may be an error.

        Raises:
            LinkError: If the plugin does not answer, which it does not where there is none.
            Disconnected: If the connection is lost meanwhile.
        """
        answers: list[CommandResult] = []
        for batch in _batches(commands):
            answers += await self._send(batch)
        return answers

    async def look_up(self, usernames: Iterable[str], rolenames: Iterable[str]) -> DynsecState:
        """Read these clients and roles; those that are not there are left out."""
        asked = [
            *(Ask(command="getClient", username=each) for each in usernames),
            *(Ask(command="getRole", rolename=each) for each in rolenames),
        ]
        state = DynsecState({}, {})
        for question, answer in zip(asked, await self.ask(asked), strict=True):
            if answer.is_missing:
                continue
            if question.command == "getClient":
                client = _part(answer, _CLIENT, "client")
                state.clients[client.username] = client
            else:
                role = _part(answer, _ROLE, "role")
                state.roles[role.rolename] = role
        return state

    async def read(self) -> DynsecState:
        """Read all clients and roles."""
        clients = [each async for each in self._pages("listClients", "clients", _CLIENTS)]
        roles = [each async for each in self._pages("listRoles", "roles", _ROLES)]
        return DynsecState({each.username: each for each in clients}, {each.rolename: each for each in roles})

    async def groups(self) -> list[Group]:
        return [each async for each in self._pages("listGroups", "groups", _GROUPS)]

    async def default_access(self) -> dict[str, bool]:
        """Return what holds where no role says anything, by ``acltype``."""
        (answer,) = await self.ask([Ask(command="getDefaultACLAccess")])
        return {each.acltype: each.allow for each in _part(answer, _DEFAULTS, "acls")}

    async def anonymous_group(self) -> str:
        """Name the group whose roles those have who log in without a name; empty for none."""
        (answer,) = await self.ask([Ask(command="getAnonymousGroup")])
        return _part(answer, _TEXT, "group", "groupname")

    async def _pages(self, command: str, key: str, kind: TypeAdapter[list[_Item]]) -> AsyncIterator[_Item]:
        offset = 0
        while True:
            (answer,) = await self.ask(
                [
                    Ask.model_validate(
                        {"command": command, "verbose": True, "count": LISTED_AT_ONCE, "offset": offset}
                    )
                ]
            )
            page = _part(answer, kind, key)
            for each in page:
                yield each
            offset += len(page)
            if not page or offset >= _part(answer, _COUNT, "totalCount"):
                return

    async def _send(self, batch: Sequence[Command]) -> list[CommandResult]:
        loop = asyncio.get_running_loop()
        waiting: dict[str, asyncio.Future[CommandResult]] = {
            f"strawberry-{next(self._numbers)}": loop.create_future() for _ in batch
        }
        body = {
            "commands": [
                {**_plain(command), "correlationData": number}
                for number, command in zip(waiting, batch, strict=True)
            ]
        }
        self._pending |= waiting
        try:
            async with asyncio.timeout(self._timeout_s):
                # Confirmed, because the broker's refusal comes with the confirmation.
                await self._link.publish(topics.DYNAMIC_SECURITY, json.dumps(body).encode(), confirmed=True)
                return [await each for each in waiting.values()]
        except Forbidden:
            raise _not_allowed() from None
        except TimeoutError:
            raise LinkError("the broker does not answer on its control topic", hint=_NO_PLUGIN) from None
        finally:
            for number, future in waiting.items():
                del self._pending[number]
                # What was set and is waited for no more would be reported as never retrieved.
                if future.done() and not future.cancelled():
                    future.exception()
                future.cancel()

    def _arrived(self, message: Message) -> None:
        try:
            answers = CommandResult.list_in(message.payload)
        except ValidationError:
            _log.warning("dropped an answer of the dynamic security that is none")
            return
        for answer in answers:
            future = self._pending.get(answer.correlation)
            if future is not None and not future.done():
                future.set_result(answer)

    def _lost(self) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(Disconnected("the connection was lost before the broker answered"))


_CLIENT: Final = TypeAdapter(Client)
_CLIENTS: Final = TypeAdapter(list[Client])
_ROLE: Final = TypeAdapter(Role)
_ROLES: Final = TypeAdapter(list[Role])
_GROUPS: Final = TypeAdapter(list[Group])
_DEFAULTS: Final = TypeAdapter(list[DefaultAccess])
_TEXT: Final = TypeAdapter(str)
_COUNT: Final = TypeAdapter(int)


def _part(answer: CommandResult, kind: TypeAdapter[_Item], *path: str) -> _Item:
    """Return a part of an answer.

    Raises:
        NotFound, Conflict, LinkError: If the plugin refuses the command.
        LinkError: If the answer lacks the part.
    """
    if answer.error is not None:
        raise _explained(answer)
    data: Any = answer.data
    try:
        for key in path:
            data = data[key]
        return kind.validate_python(data)
    except (KeyError, TypeError, ValidationError):
        raise LinkError(f"Mosquitto answers {answer.command} in a form that is not known") from None


def _plain(command: Command) -> dict[str, object]:
    return command.model_dump(mode="json", exclude_none=True)


def _batches(commands: Sequence[Command]) -> Iterator[list[Command]]:
    batch: list[Command] = []
    size = 0
    for command in commands:
        length = len(json.dumps(_plain(command)))
        if batch and (len(batch) == COMMANDS_AT_ONCE or size + length > COMMAND_BYTES_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(command)
        size += length
    if batch:
        yield batch


def _not_allowed() -> LinkError:
    return LinkError(
        "this login may not change the logins of the broker",
        hint="Use the administrator that 'mosquitto_ctrl dynsec init' made.",
    )


def _explained(answer: CommandResult) -> StrawberryError:
    text = f"Mosquitto refuses {answer.command}: {answer.error}"
    if answer.is_missing:
        return NotFound(text)
    if (answer.error or "").endswith("already exists"):
        return Conflict(text)
    return LinkError(text)
