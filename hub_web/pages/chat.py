"""Chat with the assistant: conversations, the turns of one, and the place to write."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from nicegui import ui

from chat import conversations
from chat.conversations import cancel, list_conversations, show_conversation
from contracts.answers.record import ConversationTurn
from contracts.chat.messages import MAX_MESSAGE, ChatFile, ConversationSummary
from contracts.errors import Forbidden, NotFound
from contracts.text import shortened
from hub_agent.agents.operations import list_agents
from hub_registry.http.devices import list_devices
from hub_server.http import sentences
from hub_server.http.turns import changes as turn_changes
from hub_server.system.models import list_models
from hub_web import limits, sb
from hub_web.feeds import Attached, Feed
from hub_web.parts.calls.forms import choice, search_field, text_field
from hub_web.parts.files import Attachments
from hub_web.parts.names import load_names
from hub_web.parts.turns.turn import Replaced, TurnBox
from hub_web.shell import page
from hub_web.texts import text
from hub_web.view import part, view
from identity.ids import uuid7

_SEND: Final = """(event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    emit();
}"""


@page("/chat", title="Chat", icon="chat_bubble_outline", menu=10, width="full")
async def new_chat() -> None:
    await _Chat(uuid7(), is_new=True).build()


@page("/chat/{conversation}", title="Chat", icon="chat_bubble_outline", width="full")
async def open_chat(conversation: str) -> None:
    await _Chat(conversation, is_new=False).build()


class _Chat:
    """The page.

    Args:
        conversation: Its id.
        is_new: Whether nothing was said in it yet.
    """

    def __init__(self, conversation: str, *, is_new: bool) -> None:
        self._id = conversation
        self._is_new = is_new
        self._running: Feed | None = None
        self._first: str | None = None
        self._turns: list[TurnBox] = []
        self._replacing: TurnBox | None = None

    async def build(self) -> None:
        """Make everything."""
        self._names = await load_names()
        with ui.element("div").classes("sb-chat"):
            with sb.named(ui.element("aside").classes("sb-chats"), text("Conversations")):
                self._list = _Conversations(self._id)
            with ui.element("div").classes("sb-chat-main"):
                self._top = ui.element("div").classes("sb-chat-top")
                thread = ui.element("div").classes("sb-thread").props("role=log")
                self._thread = sb.named(thread, text("Conversation"))
                await self._build_composer()
        title = await self._list.refresh()
        with self._top:
            phone = view.tool("forum", text("Conversations"), self._list.show_dialog)
            phone.classes("sb-chats-button")
        if self._is_new:
            await self._welcome()
        else:
            await self._load(title)

    # -- what was said ------------------------------------------------------------------------------

    async def _welcome(self) -> None:
        models = await view.api(list_models)
        tried = await view.api(sentences.attempt, "?", language=view.language)
        with self._thread:
            # Above the examples, where the place to write does not cover it on a phone.
            if not models.models:
                with sb.card(text("No model is configured yet."), icon="psychology"):
                    sb.note(text("Until then only sentences that skills declare are understood."))
                    if view.is_admin:
                        with sb.row():
                            view.button(text("Choose a model"), lambda: view.go("/models"), kind="primary")
            with sb.empty("chat_bubble_outline", text("What can I do for you?")):
                for example in [each for each in tried.examples if "<" not in each][:4]:
                    view.button(example, partial(self._say, example), kind="plain")

    async def _load(self, title: str | None) -> None:
        """Show the last turns, and follow what still runs.

        Args:
            title: Of the conversation, where the list has it.
        """
        feeds = view.feeds.of(view.user.id, self._id)
        exchanges: list[ConversationTurn] = []
        try:
            found = await view.api(show_conversation, self._id, limits.TURNS_SHOWN)
            exchanges = found.exchanges
            if title is None and (found.title or len(exchanges) < limits.TURNS_SHOWN):
                asked = next((each.question for each in exchanges if each.replaced_by is None), "")
                title = _title(found.title, asked)
        except NotFound:
            if not feeds:
                raise
        if title:
            view.title(title)
        if exchanges and exchanges[-1].agent in self._agent.options:
            self._agent.value = exchanges[-1].agent
        if len(exchanges) == limits.TURNS_SHOWN:
            with self._thread:
                more = view.button(text("Earlier turns"), lambda: self._earlier(more), kind="flat")
        self._show(exchanges, feeds)
        known = {each.turn for each in exchanges}
        for feed in feeds.values():
            if feed.turn not in known:
                self._follow(feed)
        ui.run_javascript("strawberry.toEnd()")

    def _show(
        self, exchanges: list[ConversationTurn], feeds: dict[str, Feed], *, earlier: bool = False
    ) -> None:
        if exchanges:
            self._first = exchanges[0].turn
        fold, made = None, list[ui.element]()
        turns = list[TurnBox]() if earlier else self._turns
        for exchange in exchanges:
            feed = feeds.get(exchange.turn)
            if feed is not None and exchange.ended_at is None:
                self._follow(feed)
                continue
            box = self._box(exchange.question, exchange.turn, exchange.files)
            box.show_recorded(exchange)
            if exchange.replaced_by is None:
                fold = None
                turns.append(box)
                made.append(box.box)
                continue
            if fold is None:
                fold = self._fold()
                made.append(fold.box)
            fold.take(box)
        if earlier:
            self._turns[:0] = turns
            for place, element in enumerate(made, start=1):
                element.move(self._thread, place)

    def _fold(self) -> Replaced:
        with self._thread:
            return Replaced()

    async def _earlier(self, button: ui.button) -> None:
        found = await view.api(show_conversation, self._id, limits.TURNS_SHOWN, before=self._first)
        self._show(found.exchanges, {}, earlier=True)
        if len(found.exchanges) < limits.TURNS_SHOWN:
            button.delete()

    def _box(self, question: str, turn: str, files: Sequence[ChatFile]) -> TurnBox:
        with self._thread:
            return TurnBox(
                question, turn=turn, on_edit=self._edit, on_retry=self._retry, names=self._names, files=files
            )

    # -- saying something ---------------------------------------------------------------------------

    async def _build_composer(self) -> None:
        found = await view.api(list_agents)
        own = [each.name for each in found if each.models is not None]
        agents = {"assistant": text("Assistant"), **{name: name for name in own}}
        devices: list[str] = []
        with suppress(Forbidden):
            there = await view.api(list_devices)
            devices = [each.name for each in there if each.state == "online"]
        with ui.element("form").classes("sb-composer").on("submit.prevent", self._send):
            self._note = ui.element("div").classes("sb-editing").props("role=status")
            chosen = sb.row().props("aria-live=polite")
            self._input = sb.named(ui.textarea(), text("Message")).classes("sb-grow sb-draft")
            self._input.props(f"autogrow borderless dense autofocus rows=1 maxlength={MAX_MESSAGE}")
            self._input.props["placeholder"] = text("Message")
            self._input.on("keydown", self._send, js_handler=_SEND)
            self._input.on("keydown.esc", view.showing(self._leave))
            with ui.element("div").classes("sb-composer-tools"):
                self._attachments = Attachments(chosen)
                self._agent = choice(text("Agent"), agents, "assistant")
                self._agent.set_visibility(len(agents) > 1)
                self._device = choice(text("I am at"), {"": text("no device"), **{d: d for d in devices}}, "")
                self._device.set_visibility(len(devices) > 1)
                ui.element("div").classes("sb-grow")
                stop = text.of("an answer", "Stop")
                self._stop_button = view.button("", self._stop, icon="stop", kind="danger", tip=stop)
                self._stop_button.classes("sb-send").set_visibility(False)
                self._send_button = view.button(
                    "", self._send, icon="arrow_upward", kind="primary", tip=text("Send")
                )
                self._send_button.classes("sb-send")

    async def _send(self) -> None:
        said = (self._input.value or "").strip()
        if not said or self._running is not None:
            return
        self._input.value = ""
        await self._say(said, replaces=self._replacing, attached=self._attachments.take())

    async def _say(
        self, said: str, *, replaces: TurnBox | None = None, attached: Sequence[Attached] = ()
    ) -> None:
        if self._running is not None:
            view.notify(text("One after the other: an answer is on its way."), kind="info")
            return
        if self._is_new:
            self._is_new = False
            self._thread.clear()
            ui.run_javascript(f"history.replaceState(null, '', '{view.href(f'/chat/{self._id}')}')")
        self._edit_no_more()
        if replaces in self._turns:
            fold, at = self._fold(), self._turns.index(replaces)
            for box in self._turns[at:]:
                fold.take(box)
            del self._turns[at:]
        feed = view.feeds.ask(
            view.user.id,
            view.api,
            said,
            conversation=self._id,
            agent=self._agent.value,
            device=self._device.value or None,
            replaces=replaces.turn if replaces is not None and replaces.is_kept else None,
            attached=attached,
        )
        self._follow(feed)
        ui.run_javascript("strawberry.toEnd()")

    def _follow(self, feed: Feed) -> None:
        """Show a turn that runs."""
        box = self._box(feed.question, feed.turn, feed.files)
        self._turns.append(box)
        self._set_running(feed)

        async def show_title() -> None:
            with self._thread:
                if title := await self._list.refresh():
                    view.title(title)

        async def follow() -> None:
            await box.follow(feed, begun=lambda: view.run(show_title(), name="title"))
            with self._thread:
                if self._running is feed:
                    self._set_running(None)
            await show_title()

        view.run(follow(), name=f"turn {feed.turn}")

    def _set_running(self, feed: Feed | None) -> None:
        self._running = feed
        self._stop_button.set_visibility(feed is not None)
        self._send_button.set_visibility(feed is None)

    async def _leave(self) -> None:
        """Stop the answer; where none is on its way, leave the question as it was."""
        if self._running is None and self._replacing is not None:
            self._give_up()
        await self._stop()

    async def _stop(self) -> None:
        if self._running is not None:
            await view.api(cancel, self._running.turn)

    # -- asking again -------------------------------------------------------------------------------

    async def _edit(self, box: TurnBox) -> None:
        """Put a question where one writes; what is sent then takes the place of its turn."""
        done = await self._done(box)
        self._edit_no_more()
        self._replacing, self._input.value = box, box.question
        self._attachments.put(_texts_of(box))
        self._input.run_method("focus")
        with self._note:
            with sb.row(wrap=False):
                said = text("Takes the place of this message, and of all after it.")
                sb.Words("span", said, "sb-grow")
                view.tool("close", text("Cancel"), self._give_up)
            if done:
                sb.Words("p", text("Done already, and it stays done:"), "sb-strong")
                with ui.element("ul"):
                    for line in done:
                        sb.Words("li", line)

    def _give_up(self) -> None:
        self._edit_no_more()
        self._input.value = ""
        self._attachments.put([])

    def _edit_no_more(self) -> None:
        self._replacing = None
        self._note.clear()

    async def _retry(self, box: TurnBox) -> None:
        if done := await self._done(box):
            said = text("This was done already and may be done again:\n{did}", did="\n".join(done))
            if not await view.ask(text("Ask again?"), said, yes=text("Ask again")):
                return
        await self._say(box.question, replaces=box, attached=_texts_of(box))

    async def _done(self, box: TurnBox) -> list[str]:
        """Return what a turn and those after it have changed, a line for each call."""
        if not box.is_kept:
            return []
        found = await view.api(turn_changes, box.turn)
        return [
            f"{view.at(each.at)} · {each.device_name} · {each.skill}.{each.method}"
            + ("" if each.outcome == "result" else f" ({text('perhaps')})")
            for each in found.changes
        ]


class _Conversations:
    """The list of conversations, which is a dialog on a phone.

    Args:
        current: Id of the one that is open.
    """

    def __init__(self, current: str) -> None:
        self._current = current
        self._title: str | None = None
        self._most = limits.CHATS_LISTED
        self._read = sb.one_at_a_time(self._show)
        with sb.stack().classes("sb-chats-in") as self._inside:
            view.button(text("New conversation"), lambda: view.go("/chat"), icon="add", kind="plain")
            self._search = search_field(text("Search"), view.showing(self._read))
            self._place = sb.named(ui.element("nav").classes("sb-chat-list"), text("Conversations"))

    async def refresh(self) -> str | None:
        """Read the list; return what the open conversation is called."""
        await self._read()
        return self._title

    def show_dialog(self) -> None:
        ui.run_javascript("document.querySelector('.sb-chats').classList.toggle('sb-open')")

    async def _show(self) -> None:
        wanted = (self._search.value or "").strip()
        found = await view.api(list_conversations, self._most, wanted)
        titles = (_title(each.title, each.asked) for each in found if each.id == self._current)
        self._title = next(titles, self._title)
        with sb.refilled(self._place):
            for each in found:
                self._entry(each)
            if not found:
                sb.note(text("Nothing found") if wanted else text("Nothing was said yet"))
            if len(found) == self._most < limits.MOST_CHATS_LISTED:
                view.button(text("Earlier ones"), self._show_more, kind="flat")

    async def _show_more(self) -> None:
        self._most = min(self._most + 4 * limits.CHATS_LISTED, limits.MOST_CHATS_LISTED)
        await self._read()

    def _entry(self, conversation: ConversationSummary) -> None:
        id_, title = conversation.id, _title(conversation.title, conversation.asked)
        with ui.element("div").classes("sb-chat-entry"):
            with view.anchor(f"/chat/{part(id_)}", "sb-grow sb-chat-link") as link:
                if id_ == self._current:
                    link.props("aria-current=page")
                sb.cut("span", title)
                sb.Words("span", view.ago(conversation.at), "sb-muted sb-small")
            more = sb.icon_button("more_vert", text("More for {name}", name=title))
            with more.props("size=sm"), ui.menu():
                view.menu_item(text("Rename"), lambda: self._rename(conversation))
                for kind, name in (("markdown", "Markdown"), ("json", "JSON")):
                    path = f"/api/conversations/{part(id_)}/export?format={kind}"
                    ending = {"markdown": "md"}.get(kind, kind)
                    view.menu_item(
                        text("Export as {kind}", kind=name),
                        partial(ui.download.from_url, path, f"{id_}.{ending}"),
                    )
                view.menu_item(text("Delete"), lambda: self._delete(conversation))

    async def _rename(self, conversation: ConversationSummary) -> None:

        async def save() -> None:
            renamed = await view.api(conversations.rename, conversation.id, field.value)
            if conversation.id == self._current:
                # The list may be one of a search, which the new title does not fit.
                self._title = _title(renamed.title, conversation.asked)
                view.title(self._title)
            await self.refresh()

        with view.form(text("Rename the conversation"), save):
            field = text_field(text("Title"), conversation.title or "").props("maxlength=120")

    async def _delete(self, conversation: ConversationSummary) -> None:
        title = _title(conversation.title, conversation.asked)
        question = text("Delete “{title}”?", title=title)
        if not await view.ask(question, text("It is gone for good."), yes=text("Delete"), danger=True):
            return
        await view.api(conversations.delete, conversation.id)
        if conversation.id == self._current:
            view.go("/chat")
        else:
            await self.refresh()


def _texts_of(box: TurnBox) -> list[Attached]:
    # A picture is chosen again.
    return [each for each in box.files if each.text]


def _title(title: str | None, asked: str) -> str:
    return shortened(title or asked, limits.MAX_CHAT_TITLE)
