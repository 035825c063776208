"""Watchers, timers and reminders as a skill of the hub."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

from pydantic import Field
from typing_extensions import TypedDict

from agent_core.prompt import Household
from agent_core.sentences.responses import duration_text, in_languages
from agent_core.skills.labels import labels_of
from agent_core.skills.skill import Unit, skill_method
from agent_core.times import parse_since
from chat.operations import CALL, CHANGE, LOOK
from contracts.errors import InvalidMessage
from contracts.phrases import Phrase
from contracts.validation import validated
from contracts.wire import json_for_models, rfc3339
from hub_agent.calls.own_skills import HubSkill, offers
from hub_live.watchers.definition import Missed, WatcherRequest
from hub_live.watchers.operations import timers, watchers
from hub_live.watchers.schedule import Day, moment_of
from hub_live.watchers.timers import UNNAMED, LaterCall, Timers, TimerSummary
from hub_live.watchers.watchers import Watchers
from hub_registry.access.accounts import User
from hub_registry.access.bearer import Bearer
from hub_registry.storage.tables import now

_TEST_S: Final = 300.0

Minutes = Annotated[float, Unit("min"), Field(gt=0, le=366 * 24 * 60)]
ChangedMinutes = Annotated[float, Unit("min"), Field(ge=-366 * 24 * 60, le=366 * 24 * 60)]
Names = str | list[str]
"""Not written out below: a method of the class is called ``list``."""


class TimeLeft(TypedDict):
    """A timer, and how long it still runs."""

    id: str
    text: str
    due: str
    left: Annotated[float, Unit("s")]


def _left(timer: TimerSummary) -> TimeLeft:
    left_s = timer.left_s if timer.left_s is not None else (timer.due - now()).total_seconds()
    left = max(0, round(left_s))
    return {"id": timer.id, "text": timer.text, "due": rfc3339(timer.due), "left": left}


@offers(watchers, on="_watchers")
@offers(timers, on="_timers")
class WatcherSkill(HubSkill):
    """Watchers: keep an eye on values and notify or act. Timers and reminders."""

    labels = labels_of(
        "WatcherSkill",
        english={
            "WatcherSkill": "Watchers and timers",
            "every_s": "Every (seconds)",
            "dry_run": "Only try",
            "timer_status": "Time left",
            "missed": "If missed",
            "trace": "Why?",
        },
    )

    def __init__(self, watchers: Watchers, timers: Timers, *, household: Household) -> None:
        self._watchers = watchers
        self._timers = timers
        self._household = household

    @skill_method(timeout_s=120)
    async def create_watcher(
        self,
        name: str,
        topics: list[str] | dict[str, Any],
        instruction: str = "",
        every_s: float | None = None,
        on_change: bool = False,
        actions: list[Any] | None = None,
        schedule: str | None = None,
        predicate: str | None = None,
        dry_run: bool = False,
        then: list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Make a watcher that keeps an eye on values and does what is instructed.

        The user is shown its predicate and its actions, and confirms them; until then it is a draft.

        Args:
            name: Short, in the user's words.
            topics: Topics as BusSkill.query finds them: {"disk": "devices/nas/state/SystemSkill/disk"}; or a
                read-only method: {"level": {"ask": "devices.yard.TankSkill.level", "every": "5m"}}.
            instruction: What the user wants, in the user's words.
            every_s: Seconds between two evaluations; or on_change, or a schedule.
            on_change: Evaluate each new value.
            actions: Calls that it may make: [{"path": "devices.nas.NodesSkill.stop_node", "arguments":
                {"name": "camera"}}]. An argument is one value or a range: {"minimum": 0, "maximum": 50},
                {"enum": ["low", "high"]}. Without actions it only notifies.
            schedule: "every weekday at 7", "30 min before sunset", or cron.
            predicate: Condition such as: disk > 95 and mean(disk, "10m") > 90. Without it one is proposed.
            dry_run: Decide and report, but call nothing.
            then: In place of actions, where nothing needs to be judged: what is done in this order each time
                that the predicate becomes true, without a model: [{"notify": "Disk at {disk} %"}, {"call":
                "devices.nas.LampSkill.turn_off", "arguments": {}, "after": "20m"}].
        """
        given = {
            "name": name,
            "topics": topics,
            "instruction": instruction,
            "every_s": every_s,
            "on_change": on_change,
            "allow": [{"path": each} if isinstance(each, str) else each for each in actions or ()],
            "then": then or [],
            "schedule": schedule,
            "predicate": predicate,
            "dry_run": dry_run,
        }
        return await self._make(validated(WatcherRequest, given))

    @skill_method(
        timeout_s=120,
        responses=in_languages("{result.title} is active."),
    )
    async def watch(self, sentence: str) -> dict[str, Any]:
        """Make a watcher of one sentence, as the user said it: "tell me when the tank is above 95 %".

        The user is shown what it does in words, and confirms it. Try this before create_watcher.

        Args:
            sentence: With what happens, when, and what is done or told then; or a time that comes again, as
                every day. What is done once is for call_at.
        """
        by = self._by
        proposed = self._watchers.proposals.last(sentence, by.user.id) if self.asking.confirmed else None
        if proposed is None:
            proposed = validated(WatcherRequest, (await self._watchers.propose(sentence, by)).watcher)
        return await self._make(proposed)

    async def _make(self, request: WatcherRequest) -> dict[str, Any]:
        """Make a watcher once a person has confirmed it; until then it is a draft."""
        name = self._watchers.free_id(request.name, self._by)
        if not self.asking.confirmed:
            # The same draft stays: an open question shows its predicate, and a new one could be another.
            if not self._watchers.digest_shown(request, self._by):
                await self._watchers.create(request, self._by, as_draft=True)
            self.asking.need_confirmation(
                f"the watcher {name} is a draft until a person confirms its predicate and its actions",
                hint=Phrase(
                    "{name} is a draft until you approve it on its page. "
                    "'strawberry watchers approve {name}' shows it and lets it begin.",
                    name=name,
                ),
                shown=await self._watchers.views.to_confirm(name, self._by),
            )
        digest = self._watchers.digest_shown(request, self._by)
        return json_for_models(await self._watchers.approve(name, self._by, digest))

    @skill_method(idempotent=True)
    async def snooze(self, name: str, minutes: Minutes) -> dict[str, Any]:
        """Keep a watcher quiet for some minutes."""
        self.need_person()
        return json_for_models(await self._watchers.snooze(name, self._by, seconds=60 * minutes))

    @skill_method(destructive=True)
    async def remove(self, name: Names) -> str:
        """Delete a watcher and its history, or several in one call: that takes one confirmation.

        Args:
            name: One name, or a list of names.
        """
        names = [name] if isinstance(name, str) else name
        for each in names:
            await self._watchers.remove(each, self._by)
        return f"Removed: {', '.join(names)}."

    @skill_method(read_only=True, timeout_s=_TEST_S, untrusted_output=True)
    async def test(
        self, name: str, since: str = "7d", capture: str | None = None, model: bool = False
    ) -> dict[str, Any]:
        """Show when a watcher would have fired on recorded values; nothing is called.

        Args:
            name: Of the watcher.
            since: How far back, as 7d or 12h.
            capture: Id of a capture, in place of what is recorded since then.
            model: Whether the model decides the first ten times, too.
        """
        report = await self._watchers.test(
            name,
            self._by,
            since=None if capture else parse_since(since),
            capture=capture or "",
            with_model=model,
        )
        # A plot is for people.
        return json_for_models(report.model_copy(update={"lines": None}))

    @skill_method(
        sentences={
            "en": ["set (a timer|timer) for {minutes} (minutes|minute)", "set [a] {minutes} minute timer"],
            "de": [
                "stelle (einen Timer|Timer) auf {minutes} (Minuten|Minute)",
                "Timer auf {minutes} (Minuten|Minute)",
            ],
        },
        responses=in_languages("{result.text} set for {result.left}."),
    )
    async def set_timer(self, minutes: Minutes, text: str = UNNAMED) -> TimeLeft:
        """Set a timer; the user is notified when it ends."""
        due = now() + timedelta(minutes=minutes)
        return _left(await self._timers.add(self._user, text, due=due, missed="run"))

    @skill_method(responses=in_languages("I will do that in {result.left}."))
    async def call_later(
        self, minutes: Minutes, call: str, arguments: dict[str, Any] | None = None, text: str = ""
    ) -> TimeLeft:
        """Call a method in some minutes; it can be cancelled as a timer.

        Args:
            call: Path of the method, as devices.nas.LampSkill.turn_off.
            arguments: By name.
            text: What it does, in the user's words.
        """
        later = self._later(call, arguments)
        due = now() + timedelta(minutes=minutes)
        text = text or later.path.partition(".")[2]
        return _left(await self._timers.add(self._user, text, due=due, call=later))

    @skill_method(
        responses=in_languages(
            "I will do that{result.is_tomorrow: tomorrow|}[ on {result.date}] at {result.time}."
        )
    )
    async def call_at(
        self, time: str, call: str, arguments: dict[str, Any] | None = None, day: Day = "", text: str = ""
    ) -> dict[str, Any]:
        """Call a method once at a time of the day; it can be cancelled as a timer.

        Args:
            time: As of remind_at; so is day.
            call: As of call_later; so are arguments and text.
        """
        return await self._set_at(time, day, text, self._later(call, arguments))

    @skill_method(responses=in_languages("{result.text} now has {result.left} left."))
    async def add_to_timer(self, minutes: ChangedMinutes, timer: str = UNNAMED) -> TimeLeft:
        """Make a timer run longer, or shorter where minutes are negative.

        Args:
            timer: Its text or its id.
        """
        return _left(await self._timers.move(self._user, timer, timedelta(minutes=minutes)))

    @skill_method(responses=in_languages("{result.text} is paused, with {result.left} left."))
    async def pause_timer(self, timer: str = UNNAMED) -> TimeLeft:
        """Pause a timer until resume_timer.

        Args:
            timer: Its text or its id.
        """
        return _left(await self._timers.pause(self._user, timer))

    @skill_method(responses=in_languages("{result.text} goes on, with {result.left} left."))
    async def resume_timer(self, timer: str = UNNAMED) -> TimeLeft:
        """Resume a paused timer.

        Args:
            timer: Its text or its id.
        """
        return _left(await self._timers.resume(self._user, timer))

    @skill_method(
        idempotent=True,
        responses=in_languages("Cancelled timers: {result}."),
    )
    async def cancel_all_timers(self) -> int:
        """Cancel all timers; reminders that come again and again stay. Returns how many there were."""
        return len(await self._timers.remove_all(self._user))

    @skill_method(
        read_only=True,
        responses=in_languages(
            "[{result.running}.][ Paused: {result.paused}.]{result.is_empty:No timer is running.|}"
        ),
    )
    async def timer_status(self, timer: str = "") -> dict[str, Any]:
        """Report how much time is left on a timer, or on each.

        Args:
            timer: Its text; without one, all that there are.
        """
        shown = self._timers.running(self.asking.bearer(LOOK).user, timer)
        left = [(each, f"{each.text}: {duration_text(_left(each)['left'])}") for each in shown]
        running = [text for each, text in left if each.left_s is None]
        paused = [text for each, text in left if each.left_s is not None]
        return {"running": running, "paused": paused, "is_empty": not shown}

    @skill_method(
        sentences={
            "en": [
                "remind me in {minutes} (minutes|minute) to {text}",
                "remind me to {text} in {minutes} (minutes|minute)",
            ],
            "de": ["erinnere mich in {minutes} (Minuten|Minute) (an|daran) {text}"],
        },
        responses=in_languages("I will remind you in {minutes}."),
    )
    async def remind_in(self, minutes: Minutes, text: str) -> TimeLeft:
        """Remind the user of something in some minutes."""
        due = now() + timedelta(minutes=minutes)
        return _left(await self._timers.add(self._user, text, due=due))

    @skill_method(
        sentences={
            "en": [
                "remind me [{day}] at {time} to {text}",
                "remind me to {text} [{day}] at {time}",
                "remind me at {time} {day} to {text}",
            ],
            "de": [
                "erinnere mich [{day}] um {time} [uhr] (an|daran) {text}",
                "erinnere mich um {time} [uhr] {day} (an|daran) {text}",
            ],
        },
        responses=in_languages(
            "I will remind you{result.is_tomorrow: tomorrow|}[ on {result.date}] at {result.time}."
        ),
    )
    async def remind_at(self, time: str, text: str, day: Day = "") -> dict[str, Any]:
        """Remind the user of something at a time of the day.

        Args:
            time: As 8, 8:30, 8 pm or 20 Uhr 30; local time.
            day: today, tomorrow or a weekday; without one, when that time comes next.
        """
        return await self._set_at(time, day, text)

    async def _set_at(self, time: str, day: str, text: str, call: LaterCall | None = None) -> dict[str, Any]:
        zone = ZoneInfo(self._household.time_zone)
        due = moment_of(time, day, zone=zone)
        text = text or (call.path.partition(".")[2] if call is not None else "")
        made = await self._timers.add(self._user, text, due=due, call=call)
        local = due.astimezone(zone)
        days = (local.date() - now().astimezone(zone).date()).days
        date = local.date().isoformat() if days > 1 else None
        return {**json_for_models(made), "date": date, "is_tomorrow": days == 1, "time": f"{local:%H:%M}"}

    @skill_method()
    async def remind(
        self, text: str, at: str | None = None, every: str | None = None, missed: Missed = "tell"
    ) -> dict[str, Any]:
        """Remind the user, once or again and again.

        Args:
            at: Date and time, as 2026-05-01T18:30; local time.
            every: In place of at: "every weekday at 7", "sunset", or cron.
            missed: Of one that came while the hub was stopped: "tell" says that it was missed, "run" gives it
                late.
        """
        if (at is None) == (every is None):
            raise InvalidMessage("give either at or every")
        due = None if at is None else self._moment(at)
        return json_for_models(
            await self._timers.add(self._user, text, due=due, schedule=every, missed=missed)
        )

    @property
    def _by(self) -> Bearer:
        return self.asking.bearer(CALL)

    @property
    def _user(self) -> User:
        return self.asking.bearer(CHANGE).user

    def _later(self, call: str, arguments: dict[str, Any] | None) -> LaterCall:
        return self._timers.later_call(self.asking, call, arguments or {})

    def _moment(self, text: str) -> datetime:
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=ZoneInfo(self._household.time_zone))
            return moment.astimezone(UTC)
        except (ValueError, OverflowError):
            raise InvalidMessage(
                "{text!r} is no date and time", text=text[:40], hint="Write 2026-05-01T18:30."
            ) from None
