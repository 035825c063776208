"""Notifications on their way to a person, beside the web UI and the bus, which have them as events.

A service is a `Notifier`: one of Home Assistant's, or what apprise knows: push, messengers, mail, webhooks.
"""

import asyncio
import importlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from agent_core.models.entries import filled
from chat.http.requests import answer
from chat.tasks import open_tasks
from contracts.errors import ConfigError, LinkError, NotFound, StrawberryError, TooManyRequests
from contracts.rates import TokenBuckets
from contracts.wire import Json
from hub_agent.live.events import Event, Events
from hub_agent.settings import NotificationSettings
from hub_registry.access.bearer import Gate

_log = logging.getLogger(__name__)

_BURST: Final = 10
_PER_SECOND: Final = 1 / 30
"""Of one person at once, and in the long run: a watcher that goes wrong must not fill a phone."""
_SERVICE: Final = re.compile(r"notify\.[a-z0-9_]+")
_SHOWN: Final = re.compile(r"[a-z][a-z0-9+.-]{0,19}://|\$\{\w+\}$", re.IGNORECASE)
_TEMPLATE: Final = re.compile(r"\{(?=[{%#])")
_JOINER: Final = "\u2060"
"""Shows nothing, and keeps two letters apart."""
_WAITING: Final = 100
_SEND_S: Final = 30.0
_MAX_TITLE: Final = 200
_MAX_TEXT: Final = 2_000


@dataclass(frozen=True)
class Notification:
    """What a person is told.

    Attributes:
        user: Id of the person.
    """

    user: str
    title: str
    text: str


class Notifier(Protocol):
    """Something that reaches people."""

    @property
    def name(self) -> str:
        """What it is called where it does not work."""
        ...

    def reaches(self, user: str) -> bool:
        """Return whether it is for this person."""
        ...

    async def send(self, notification: Notification) -> None:
        """Send a notification.

        Raises:
            StrawberryError: If it was not sent.
        """
        ...


Notify = Callable[[str, Mapping[str, Json]], Awaitable[None]]
"""Sends a title and a message by a ``notify.NAME`` of Home Assistant."""


@dataclass(frozen=True)
class HomeAssistantNotifier:
    """One of Home Assistant's services or entities for notifications.

    Attributes:
        name: Of it: ``notify.mobile_app_phone``.
        is_for: Whether it is for a person.
    """

    name: str
    notify: Notify
    is_for: Callable[[str], bool]

    def reaches(self, user: str) -> bool:
        """See `Notifier.reaches`."""
        return self.is_for(user)

    async def send(self, notification: Notification) -> None:
        """See `Notifier.send`."""
        # Home Assistant renders both as templates, which read all of its states: what a stranger's payload
        # brought into them stays text.
        title, text = (
            _TEMPLATE.sub(f"{{{_JOINER}", each) for each in (notification.title, notification.text)
        )
        await self.notify(self.name, {"title": title, "message": text})


@dataclass(frozen=True)
class AppriseNotifier:
    """One address that apprise knows.

    Attributes:
        url: The address, in which ``${NAME}`` stands for a variable of ``.env``.
        is_for: Whether it is for a person.
    """

    url: str
    home: Path
    is_for: Callable[[str], bool]

    @property
    def name(self) -> str:
        """The kind of the service, or the variable that holds it; the rest of the address is secret."""
        shown = _SHOWN.match(self.url)
        return shown[0].removesuffix("://") if shown else "an address without ://"

    def reaches(self, user: str) -> bool:
        """See `Notifier.reaches`."""
        return self.is_for(user)

    async def send(self, notification: Notification) -> None:
        """See `Notifier.send`."""
        if find_spec("apprise") is None:
            raise ConfigError(
                "[notifications] needs a package that is not installed",
                hint="Install it: pip install 'strawberry-home[notifications]'.",
            )
        url = filled(self.home, self.url)
        library: Any = await asyncio.to_thread(importlib.import_module, "apprise")
        # Its own records have the address, with the secrets in it.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        service = library.Apprise()
        if not service.add(url):
            raise ConfigError(
                f"the address of {self.name} is not one that apprise knows", hint="See docs/monitoring.md."
            )
        if not await service.async_notify(title=notification.title, body=notification.text):
            raise LinkError(f"{self.name} did not take the notification", hint="Check its address in .env.")


class Notifications:
    """Sends notifications to their people.

    Attributes:
        notifiers: What reaches people; others may be added.
    """

    def __init__(self, notifiers: Sequence[Notifier]) -> None:
        self.notifiers = list(notifiers)
        self._buckets = TokenBuckets(burst=_BURST, per_second=_PER_SECOND)
        self._left_out: dict[str, int] = {}
        self._waiting: asyncio.Queue[Notification] = asyncio.Queue(_WAITING)

    def note(self, event: Event) -> None:
        """Have a notification sent, if the event is one; returns at once."""
        if event.kind != "notification" or not any(each.reaches(event.user) for each in self.notifiers):
            return
        if not self._buckets.take(event.user) or self._waiting.full():
            self._left_out[event.user] = self._left_out.get(event.user, 0) + 1
            return
        text = str(event.data.get("text") or event.subject)
        if left_out := self._left_out.pop(event.user, 0):
            text = f"{text[:_MAX_TEXT]}\n({left_out} more came in a short time and were not sent.)"
        self._waiting.put_nowait(
            Notification(event.user, event.subject[:_MAX_TITLE], text[: _MAX_TEXT + 100])
        )

    async def run(self) -> None:
        """Send what waits, until cancelled: by each service in order, and by none after another."""
        queues: dict[int, asyncio.Queue[Notification]] = {}
        async with open_tasks() as tasks:
            while True:
                notification = await self._waiting.get()
                for number, notifier in enumerate(self.notifiers):
                    if not notifier.reaches(notification.user):
                        continue
                    if number not in queues:
                        queue = queues[number] = asyncio.Queue(_WAITING)
                        tasks.create_task(_serve(notifier, queue), name=f"notify by {notifier.name}")
                    if queues[number].full():
                        _log.warning("%s has %d notifications to send already", notifier.name, _WAITING)
                    else:
                        queues[number].put_nowait(notification)

    async def send(self, notification: Notification) -> dict[str, str | None]:
        """Send a notification by all that reaches its person; return what went wrong with each."""
        reaching = [each for each in self.notifiers if each.reaches(notification.user)]
        results: dict[str, str | None] = {}

        async def send(number: int, notifier: Notifier) -> None:
            name = notifier.name if notifier.name not in results else f"{notifier.name} {number}"
            results[name] = None
            results[name] = await _sent(notifier, notification)

        async with asyncio.TaskGroup() as tasks:
            for number, notifier in enumerate(reaching, start=1):
                tasks.create_task(send(number, notifier), name=f"notify by {notifier.name}")
        return results

    def routes(self, gate: Gate) -> list[BaseRoute]:
        """Make the route."""
        may_chat = gate.require_user("chat")

        async def test(request: Request) -> Response:
            user = (await may_chat(request)).user.id
            if not any(each.reaches(user) for each in self.notifiers):
                hint = "Add [notifications] to strawberry.toml; docs/monitoring.md says how."
                raise NotFound("nothing sends your notifications anywhere", hint=hint)
            if not self._buckets.take(user):
                wait_s = round(1 / _PER_SECOND)
                raise TooManyRequests("too many notifications in a short time", retry_after_s=wait_s)
            sent = await self.send(Notification(user, "Strawberry", "This is a test."))
            results: list[Json] = [
                {"name": name, "sent": problem is None, "problem": problem or ""}
                for name, problem in sent.items()
            ]
            return answer(results)

        return [Route("/api/notifications/test", test, methods=["POST"])]


async def _serve(notifier: Notifier, queue: asyncio.Queue[Notification]) -> None:
    while True:
        if (problem := await _sent(notifier, await queue.get())) is not None:
            _log.warning("a notification was not sent by %s: %s", notifier.name, problem)


async def _sent(notifier: Notifier, notification: Notification) -> str | None:
    """Send a notification in its time; return what went wrong."""
    try:
        async with asyncio.timeout(_SEND_S):
            await notifier.send(notification)
    except TimeoutError:
        return f"{notifier.name} did not take it in {_SEND_S:.0f} s"
    except StrawberryError as error:
        return f"{error.message}. {error.hint}".strip()
    except Exception:  # noqa: BLE001  what one service fails with must not keep others from it
        _log.exception("%s failed", notifier.name)
        return "it failed; the log says more"
    return None


@asynccontextmanager
async def open_notifications(
    settings: NotificationSettings,
    events: Events,
    *,
    home: Path,
    home_assistant: Notify,
    tasks: asyncio.TaskGroup,
) -> AsyncIterator[Notifications]:
    """Send notifications within the block.

    Args:
        home_assistant: Sends by it.
        home: The data directory, with the secrets of addresses in ``.env``.
        tasks: Owns what sends them.
    """

    def notifier(address: str, is_for: Callable[[str], bool]) -> Notifier:
        if _SERVICE.fullmatch(address):
            return HomeAssistantNotifier(address, home_assistant, is_for)
        return AppriseNotifier(address, home, is_for)

    people = settings.people
    own = [notifier(each, owner.__eq__) for owner, theirs in people.items() for each in theirs]
    notifications = Notifications(
        [*own, *(notifier(each, lambda user: user not in people) for each in settings.urls)]
    )
    stop = events.on_published(notifications.note)
    task = tasks.create_task(notifications.run(), name="notifications")
    try:
        yield notifications
    finally:
        stop()
        task.cancel()
