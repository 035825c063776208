"""What the hub itself has in Home Assistant: chat, an event for each watcher, and messages to people."""

import asyncio
import json
import logging
from typing import Final

from contracts import topics
from contracts.chat.messages import HOME_ASSISTANT, MAX_MESSAGE, ChatRequest, TurnFinal
from contracts.devices.presence import WatcherState
from contracts.errors import InvalidMessage, StrawberryError, TooManyRequests
from contracts.phrases import for_people
from contracts.rates import TokenBucket
from contracts.text import shortened
from hub_agent.chat.assistant import Ask
from hub_home_assistant import limits
from hub_home_assistant.outward.configs import MAX_STATE, Announcement
from hub_home_assistant.outward.publishing import HUB, Publishing
from hub_live.events import Events, NotificationData
from hub_live.topics import Sample, field
from hub_live.watchers.decisions.kinds import KINDS
from hub_registry.access.bearer import Bearer
from hub_registry.registry import Registry

_log = logging.getLogger(__name__)

CHAT: Final = "hub.chat"
NOTIFY: Final = "hub.notify"
WATCHERS: Final = "hub.watchers"
_DECISIONS: Final = [name for name, kind in KINDS.items() if kind.is_decision]
_NOTES: Final = "The message came from Home Assistant, over the MQTT broker of the home."
"""With notes a turn has text of strangers: any client of that broker can write there."""


class HubEntities:
    """Adds them to the announcement of the hub, and answers what is written there."""

    def __init__(self, registry: Registry, ask: Ask, events: Events, publishing: Publishing) -> None:
        self._registry = registry
        self._ask_assistant = ask
        self._events = events
        self._publishing = publishing
        self._exposures = publishing.exposures
        self._tasks = publishing.tasks
        self._watchers: dict[str, WatcherState] = {}
        self._said = ""
        self._answer: dict[str, str] = {}
        self._waiting = 0
        self._rate = TokenBucket(burst=limits.CHATS_AT_ONCE, per_second=limits.CHATS_PER_SECOND)
        self._one = asyncio.Lock()

    def watchers(self) -> list[tuple[str, str]]:
        return [(f"{WATCHERS}.{each}", state.name) for each, state in sorted(self._watchers.items())]

    def extend(self, made: Announcement) -> None:
        """Add what is exposed of the hub to its announcement."""
        if self._exposures.find(CHAT) is not None:
            said, answer = made.place.topic("state", "chat"), made.place.topic("state", "answer")
            orders = made.place.topic("set", "chat")
            made.commands[orders] = self._say
            made.add(
                "text",
                "chat",
                "Chat",
                icon="mdi:chat",
                max=MAX_STATE,
                state_topic=said,
                # As JSON: an empty text would be no retained message, which later subscribers need.
                value_template="{{ value_json }}",
                command_topic=orders,
            )
            details = f"{answer}/attributes"
            made.add(
                "sensor",
                "answer",
                "Answer",
                icon="mdi:chat-outline",
                state_topic=answer,
                json_attributes_topic=details,
            )
            made.states[said] = json.dumps(self._said).encode()
            made.states[answer] = self._answer.get("answer", "")[:MAX_STATE].encode()
            made.states[details] = json.dumps(self._answer, ensure_ascii=False).encode()
        if self._exposures.find(NOTIFY) is not None:
            orders = made.place.topic("set", "notify")
            made.commands[orders] = self._notify
            # Home Assistant has such entities since 2024.5, and announcements of a device since 2024.11.
            if self._publishing.discovery == "device":
                made.add("notify", "notify", "Notify", command_topic=orders)
            else:
                made.add("text", "notify", "Notify", icon="mdi:bell", max=MAX_STATE, command_topic=orders)
        for path, name in self.watchers():
            if self._exposures.find(path) is not None:
                object_ = f"watcher-{path.rpartition('.')[2]}"
                made.add(
                    "event",
                    object_,
                    f"Watcher {name}",
                    icon="mdi:eye",
                    state_topic=made.place.topic("state", object_),
                    event_types=_DECISIONS,
                )

    def hear_watcher(self, sample: Sample) -> None:
        """Store the state of a watcher; for `Feed.follow`."""
        names = topics.WATCHER.match(sample.topic)
        if names is None:
            return
        id_, before = names["watcher"], self._watchers.get(names["watcher"])
        if not sample.payload:
            self._watchers.pop(id_, None)
            self._publishing.refresh(HUB)
            return
        try:
            state = self._watchers[id_] = topics.WATCHER.parse(sample.payload)
        except InvalidMessage:
            return
        if before is None or before.name != state.name:
            self._publishing.refresh(HUB)

    def hear_decision(self, sample: Sample) -> None:
        """Publish what a watcher decided, and none of what it saw; for `Feed.follow`."""
        name, decision = field(sample.value, "subject"), field(sample.value, "data.decision")
        if not isinstance(name, str) or name not in self._watchers or decision not in _DECISIONS:
            return
        if self._exposures.find(f"{WATCHERS}.{name}") is not None:
            self._publishing.send_event(HUB, f"watcher-{name}", {"event_type": decision, "watcher": name})

    def _say(self, text: str) -> None:
        message, exposure = text.strip(), self._exposures.find(CHAT)
        if exposure is None or not 0 < len(message) <= MAX_MESSAGE:
            raise InvalidMessage("there is no message")
        if self._waiting >= limits.MOST_CHATS:
            raise TooManyRequests("too many messages wait for their answers")
        if not self._rate.take():
            raise TooManyRequests(
                "too many messages come, perhaps of an automation that answers the assistant"
            )
        self._waiting += 1
        self._said = message[:MAX_STATE]
        self._publishing.refresh(HUB)
        self._tasks.create_task(self._ask(message, exposure.user), name="home assistant: chat")

    async def _ask(self, message: str, user: str) -> None:
        answer = ""
        try:
            async with self._one:
                answer = await self._turn(message, user)
        except StrawberryError as error:
            answer = f"{error.message}. {for_people(error.hint)}".strip()
        except Exception:  # noqa: BLE001  one message must not end the hub
            _log.exception("a message of Home Assistant failed")
            answer = "the hub failed; its log says more"
        finally:
            self._waiting -= 1
        self._answer = {
            "question": shortened(message, limits.MAX_QUESTION),
            "answer": shortened(answer, limits.MAX_ANSWER),
        }
        self._publishing.refresh(HUB)

    async def _turn(self, message: str, user: str) -> str:
        """Run a turn in its own conversation; a call cannot be confirmed there."""
        registry = self._registry
        bearer = Bearer.inside(registry.hub_id, HOME_ASSISTANT, await registry.accounts.get(user))
        asked = ChatRequest(message=message, conversation=HOME_ASSISTANT, notes=_NOTES)
        last = await (await self._ask_assistant(asked, bearer)).last()
        if isinstance(last, TurnFinal):
            return last.answer
        return last.answer or f"{last.message}. {for_people(last.hint)}".strip()

    def _notify(self, text: str) -> None:
        exposure = self._exposures.find(NOTIFY)
        if exposure is not None and text.strip():
            event = NotificationData(
                subject=text.strip()[:200], text=text[:MAX_MESSAGE], sender=HOME_ASSISTANT
            )
            self._tasks.create_task(self._events.publish(exposure.user, event), name="home assistant: notify")
