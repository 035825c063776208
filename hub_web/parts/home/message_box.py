"""Message box of Home: a message to the assistant, answered in place, and gone on with in Chat."""

from nicegui import ui

from hub_web import sb
from hub_web.feeds import Feed
from hub_web.parts.names import load_names
from hub_web.parts.turns.turn import TurnBox
from hub_web.texts import text
from hub_web.view import view
from identity.ids import uuid7


class MessageBox:
    """The box; all messages of one visit are one conversation.

    Args:
        said: What is in it at first.
        done: Called by a button below the answer.
    """

    def __init__(self, said: str = "", done: sb.Callback | None = None) -> None:
        self._done = done
        self._conversation = uuid7()
        self._running: Feed | None = None
        with ui.element("form").classes("sb-ask").on("submit.prevent", self._send):
            ui.icon("chat_bubble_outline")
            self._input = (
                ui.input(value=said).props("borderless dense maxlength=32000").classes("sb-grow sb-draft")
            )
            label = text("Ask or tell your home …")
            sb.named(self._input, label).props["placeholder"] = label
            send = view.button("", self._send, icon="arrow_upward", kind="primary", tip=text("Send"))
            send.classes("sb-send")
        self._place = ui.element("div").classes("sb-asked")

    async def _send(self) -> None:
        said = str(self._input.value or "").strip()
        if not said:
            return
        names = await load_names()
        if self._running is not None:
            view.notify(text("One after the other: an answer is on its way."), kind="info")
            return
        self._input.value = ""
        feed = view.feeds.ask(view.user.id, view.api, said, conversation=self._conversation)
        self._running = feed
        with sb.refilled(self._place):
            box = TurnBox(
                said, turn=feed.turn, on_edit=self._open_chat, on_retry=self._open_chat, names=names
            )
            view.link(text("Continue in Chat"), f"/chat/{self._conversation}")
        view.run(self._follow(box, feed), name=f"turn {feed.turn}")

    async def _follow(self, box: TurnBox, feed: Feed) -> None:
        try:
            await box.follow(feed, begun=lambda: None)
            if self._done is not None:
                with self._place, sb.actions():
                    view.button(text("Continue"), self._done, icon="arrow_forward")
        finally:
            self._running = None

    async def _open_chat(self, _: TurnBox) -> None:
        view.go(f"/chat/{self._conversation}")
