"""Notifications on their way to a person, beside the web UI and the bus, which have them as events.

A service is a `Notifier`: one of Home Assistant's, or what apprise knows: push, messengers, mail, webhooks.
"""

import asyncio
import importlib
import logging
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from agent_core.models.entries import filled
from agent_core.prompt import Household
from chat.operations import LOOK, Resource
from chat.tasks import open_tasks
from contracts.answers.live import SentTest
from contracts.errors import ConfigError, LinkError, NotFound, StrawberryError, TooManyRequests
from contracts.phrases import Phrase
from contracts.rates import TokenBuckets
from contracts.wire import Json
from hub_agent.address import COMMAND_LINE
from hub_agent.settings import NotificationSettings
from hub_agent.tables import EventRow
from hub_live import limits
from hub_live.events import Events, NotificationData
from hub_live.push import Notice, Push, PushText, Words, plain
from hub_registry.access.bearer import Bearer
from hub_registry.access.tokens import TokenAuthority
from hub_registry.storage.store import Store
from hub_registry.storage.tables import now

_log = logging.getLogger(__name__)

_SERVICE: Final = re.compile(r"notify\.[a-z0-9_]+")
_SHOWN: Final = re.compile(r"[a-z][a-z0-9+.-]{0,19}://|\$\{\w+\}$", re.IGNORECASE)
_TEMPLATE: Final = re.compile(r"\{(?=[{%#])")
_JOINER: Final = "\u2060"
"""Shows nothing, and keeps two letters apart."""
_SOON: Final = timedelta(days=30)
_MANY: Final = 10_000

Send = Callable[[Notice], Awaitable[None]]
"""Sends a notification; raises `StrawberryError` if that was not sent."""

HouseholdOf = Callable[[str], Awaitable[Household]]

Notify = Callable[[str, Mapping[str, Json]], Awaitable[None]]
"""Sends a title and a message by a ``notify.NAME`` of Home Assistant."""


@dataclass(frozen=True, eq=False)
class Notifier:
    """Something that reaches people.

    Attributes:
        name: What it is called where it does not work; no secret is in it.
        reaches: Whether it is for a person.
    """

    name: str
    reaches: Callable[[str], bool]
    send: Send
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def sent(self, notice: Notice) -> str | None:
        """Send a notification after those before it; return what went wrong."""
        try:
            async with (
                asyncio.timeout(limits.NOTIFICATIONS_AT_ONCE * limits.SEND_S),
                self._one,
                asyncio.timeout(limits.SEND_S),
            ):
                await self.send(notice)
        except TimeoutError:
            return Phrase("{name} did not take it in {seconds:.0f} s", name=self.name, seconds=limits.SEND_S)
        except StrawberryError as error:
            return Phrase("{message}. {hint}", message=error.message, hint=error.hint).strip()
        except Exception:  # noqa: BLE001  what one service fails with must not keep others from it
            _log.exception("%s failed", self.name)
            return "it failed; the log says more"
        return None


def home_assistant_notifier(
    name: str, notify: Notify, reaches: Callable[[str], bool], words: Words = plain
) -> Notifier:
    """Make the notifier of a service or an entity of Home Assistant: ``notify.mobile_app_phone``."""

    async def send(notice: Notice) -> None:
        # Home Assistant renders both as templates, which read all of its states: what a stranger's payload
        # brought into them stays text.
        said = words(notice, notice.household.language)
        title, text = (_TEMPLATE.sub(f"{{{_JOINER}", each) for each in (said.title, said.body))
        await notify(name, {"title": title, "message": text})

    return Notifier(name, reaches, send)


def apprise_notifier(
    address: str, home: Path, reaches: Callable[[str], bool], words: Words = plain
) -> Notifier:
    """Make the notifier of an address that apprise knows.

    Args:
        address: In it ``${NAME}`` stands for a variable of ``.env``.
    """
    # The kind of the service, or the variable that holds it; the rest of the address is secret.
    shown = _SHOWN.match(address)
    name = shown[0].removesuffix("://") if shown else "an address without ://"

    async def send(notice: Notice) -> None:
        if find_spec("apprise") is None:
            raise ConfigError(
                "[notifications] needs a package that is not installed",
                hint="Install it: pip install 'strawberry-home[notifications]'.",
            )
        url = filled(home, address)
        library: Any = await asyncio.to_thread(importlib.import_module, "apprise")
        # Its own records have the address, with the secrets in it.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        service = library.Apprise()
        if not service.add(url):
            raise ConfigError(
                "the address of {name} is not one that apprise knows",
                name=name,
                hint="Apprise's documentation lists them.",
            )
        said = words(notice, notice.household.language)
        if not await service.async_notify(title=said.title, body=said.body):
            raise LinkError(
                "{name} did not take the notification", name=name, hint="Check its address in .env."
            )

    return Notifier(name, reaches, send)


async def announce_ends(authority: TokenAuthority, events: Events, *, at: datetime) -> None:
    """Notify people, of each once, of tokens and logins of their programs that end within a month."""
    for row in await authority.list():
        is_over = row.revoked_at is not None or row.expires_at <= at
        # What was made for less than that ends as it was meant to; the hub makes the command line's again.
        is_late = row.issued_at + _SOON < row.expires_at < at + _SOON and row.name != COMMAND_LINE
        if is_over or not is_late or row.is_session or row.kind == "device":
            continue
        before = await events.after(0, user=row.owner, limit=_MANY)
        if not any(row.jti in str(each.data) for each in before):
            text = Phrase(
                "{name} ends on {day}. 'strawberry broker login' makes a new one."
                if row.kind == "client"
                else "{name} ends on {day}. Make a new one under People.",
                name=row.name,
                day=row.expires_at.date(),
            )
            event = NotificationData(subject=row.name, text=text, sender="hub", token=row.jti)
            await events.publish(row.owner, event)


async def announce_missing_values(missing: Iterable[tuple[str, str, str]], events: Events) -> None:
    """Notify people, of each once, of watchers and captures that get no values.

    Args:
        missing: Owner, name and reason of each.
    """
    problems: dict[str, dict[str, str]] = {}
    for owner, name, problem in missing:
        problems.setdefault(owner, {})[name] = problem
    for owner, own in problems.items():
        before = await events.after(0, user=owner, kinds=["notification"], limit=_MANY)
        known = {name for each in before for name in each.data.get("without_values", ())}
        if new := sorted(own.keys() - known):
            shown = "; ".join(f"{name}: {own[name]}" for name in new)
            text = Phrase("There are no values for {shown}.", shown=shown)
            event = NotificationData(subject=new[0], text=text, sender="hub", without_values=new)
            await events.publish(owner, event)


@dataclass(eq=False)
class Notifications:
    """Sends notifications to their people.

    Attributes:
        make: Makes what reaches people.
        tasks: Owns what is being sent.
        household_of: Returns the household as a person has it.
    """

    make: Callable[[NotificationSettings], Sequence[Notifier]]
    settings: InitVar[NotificationSettings]
    _: KW_ONLY
    tasks: asyncio.TaskGroup
    household_of: HouseholdOf | None = None

    def __post_init__(self, settings: NotificationSettings) -> None:
        self.use(settings)
        self._buckets = TokenBuckets(
            burst=limits.NOTIFICATIONS_AT_ONCE, per_second=limits.NOTIFICATIONS_PER_SECOND
        )
        self._left_out: dict[str, int] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def use(self, settings: NotificationSettings) -> None:
        self._notifiers = self.make(settings)

    def note(self, event: EventRow) -> None:
        """Queue a notification, if the event is one; returns at once."""
        reaching = self._reaching(event.user) if event.kind == "notification" else []
        if reaching and not self._buckets.take(event.user):
            self._left_out[event.user] = self._left_out.get(event.user, 0) + 1
            return
        notice = Notice(event, self._left_out.pop(event.user, 0) if reaching else 0)
        for each in reaching:
            task = self.tasks.create_task(self._tell(each, notice), name=f"notify by {each.name}")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def finish(self) -> None:
        if self._sending:
            await asyncio.wait(self._sending, timeout=limits.LAST_SEND_S)

    async def _tell(self, notifier: Notifier, notice: Notice) -> None:
        if self.household_of is not None:
            notice = replace(notice, household=await self.household_of(notice.event.user))
        if (problem := await notifier.sent(notice)) is not None:
            _log.warning("a notification was not sent by %s: %s", notifier.name, problem)

    def _reaching(self, user: str) -> list[Notifier]:
        return [each for each in self._notifiers if each.reaches(user)]

    async def test(self, user: str) -> list[SentTest]:
        """Send a notification to each address of a person.

        Raises:
            NotFound: If there is none.
            TooManyRequests: If there were too many in a short time.
        """
        if not (reaching := self._reaching(user)):
            hint = (
                "Switch them on under the bell of the web UI. Or add [notifications] with "
                'urls = ["ADDRESS"] to strawberry.toml.'
            )
            raise NotFound("nothing sends your notifications anywhere", hint=hint)
        if not self._buckets.take(user):
            wait_s = round(1 / limits.NOTIFICATIONS_PER_SECOND)
            raise TooManyRequests("too many notifications in a short time", retry_after_s=wait_s)
        data = {"text": "This is a test."}
        notice = Notice(EventRow(user=user, kind="notification", subject="Strawberry", data=data, at=now()))
        problems = await asyncio.gather(*(each.sent(notice) for each in reaching))
        return [
            SentTest(name=each.name, sent=problem is None, problem=problem or "")
            for each, problem in zip(reaching, problems, strict=True)
        ]


notifications: Resource[Notifications, Bearer] = Resource("notifications", "/api/notifications")


@notifications.post(LOOK, "/test")
async def test(notifications: Notifications, asking: Bearer) -> list[SentTest]:
    """Send yourself a [notification](monitoring.md#notifications) to each address that is set up for you."""
    return await notifications.test(asking.user.id)


async def tell_full_disk(store: Store, events: Events, *, person: str, directory: Path) -> None:
    """Notify a person when the disk of the hub is full, and when there is room again, until cancelled."""
    while True:
        await store.full.wait()
        text = "The disk is full: nothing can be saved. Calls and sentences still work. Free some space."
        await events.publish(person, NotificationData(subject="disk", text=text, sender="disk"))
        has_room = False
        while not has_room:
            await asyncio.sleep(limits.DISK_LOOK_S)
            has_room = shutil.disk_usage(directory).free >= limits.DISK_MENDED_BYTES
        text = "The disk has room again: data is saved as usual."
        await events.publish(person, NotificationData(subject="disk", text=text, sender="disk"))
        # Only now: writes that failed before, and report it late, are none of a disk that is full again.
        store.full.clear()


@asynccontextmanager
async def open_notifications(
    settings: NotificationSettings,
    events: Events,
    *,
    home: Path,
    home_assistant: Notify,
    push: Push,
    household_of: HouseholdOf,
) -> AsyncIterator[Notifications]:
    """Send notifications within the block.

    Args:
        household_of: Returns the household as a person has it.
        home_assistant: Sends by it.
        home: The data directory, with the secrets of addresses in ``.env``.
    """

    def words(notice: Notice, language: str) -> PushText:
        return push.words(notice, language)  # as they are by then

    def notifier(address: str, reaches: Callable[[str], bool]) -> Notifier:
        if _SERVICE.fullmatch(address):
            return home_assistant_notifier(address, home_assistant, reaches, words)
        return apprise_notifier(address, home, reaches, words)

    def notifiers(settings: NotificationSettings) -> list[Notifier]:
        people = settings.people
        own = [notifier(each, owner.__eq__) for owner, theirs in people.items() for each in theirs]
        others = [notifier(each, lambda user: user not in people) for each in settings.urls]
        push.allow_private = settings.push_private
        return [Notifier("web push", push.reaches, push.send), *own, *others]

    async with open_tasks(contained=True) as tasks:
        notifications = Notifications(notifiers, settings, tasks=tasks, household_of=household_of)
        stop = events.on_published(notifications.note)
        try:
            yield notifications
        finally:
            stop()
            await notifications.finish()
