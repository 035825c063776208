"""Arrangement of Home: what each person has starred, hidden, ordered and renamed, and the tools for that."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from nicegui import ui

from contracts.answers.people import HomeCard, HomeLayout
from contracts.errors import Conflict
from contracts.limits import MAX_LABEL, MOST_HOME_CARDS, MOST_HOME_NAMES
from hub_registry.http.sessions import arrange_home, show_home
from hub_web import sb
from hub_web.parts.calls.forms import text_field
from hub_web.texts import text
from hub_web.view import view

T = TypeVar("T")

_RENAME: Final = 4
"""Place of that button among the tools of a card."""
_DRAG: Final = "(event) => event.dataTransfer.setData('text/plain', event.currentTarget.dataset.card)"
_DROP: Final = "(event) => { event.preventDefault(); emit(event.dataTransfer.getData('text/plain')); }"


class Arrangement:
    """A person's layout; each change is stored at once.

    Args:
        on_change: Called after each change, to make the page again.

    Attributes:
        is_on: Whether the page shows the tools.
    """

    def __init__(self, on_change: Callable[[], Any]) -> None:
        self.is_on = False
        self._buttons: dict[tuple[str, int], ui.button] = {}
        self._on_change = on_change
        self._cards: dict[str, HomeCard] = {}

    async def load(self) -> None:
        """Read what the person has stored."""
        found = await view.api(show_home)
        self._cards = {each.id: each for each in found.cards}

    def card(self, card_id: str) -> HomeCard:
        return self._cards.get(card_id) or HomeCard(id=card_id)

    def ordered(self, cards: Iterable[T], id_of: Callable[[T], str]) -> list[T]:
        """Return cards in the person's order, those without a place in it last."""
        places = {card_id: place for place, card_id in enumerate(self._cards)}
        return sorted(cards, key=lambda each: places.get(id_of(each), len(places)))

    def tools(self, card_id: str, names: dict[str, str], *, title: str, among: Sequence[str]) -> None:
        """Make the buttons that arrange a card.

        Args:
            names: Names of its values and controls, as they are without the person's.
            title: Its own name.
            among: Ids of the cards that it is shown among, in order.
        """
        card, place = self.card(card_id), among.index(card_id)
        star = partial(self._change, card_id, among, star=not card.star)
        hide = partial(self._change, card_id, among, hidden=not card.hidden)
        unstar = ("star", text("Remove from favourites"), star)
        tools: list[tuple[str, str, sb.Callback | None]] = [
            unstar if card.star else ("star_border", text("Add to favourites"), star),
            ("visibility_off", text("Show"), hide) if card.hidden else ("visibility", text("Hide"), hide),
            ("arrow_upward", text("Move up"), self._moving(card_id, place - 1, among)),
            ("arrow_downward", text("Move down"), self._moving(card_id, place + 1, among)),
            ("edit", text("Rename"), partial(self._rename, card_id, names, title, among)),
        ]
        name = card.name or title
        bar = ui.element("div").classes("sb-arrange").props("role=toolbar")
        with sb.named(bar, text("Arrange {name}", name=name)):
            for number, (icon, label, act) in enumerate(tools):
                made = sb.named(sb.icon_button(icon, label), f"{label}: {name}")
                self._buttons[card_id, number] = made
                if act is None:
                    made.disable()
                elif number == _RENAME:
                    made.on_click(act)  # a form, which has the focus until it is closed
                else:
                    made.on_click(view.showing(partial(self._act, act, (card_id, number))))

    def drag(self, box: ui.element, card_id: str, among: Sequence[str]) -> None:
        """Make a card draggable onto the place of another one."""

        async def drop(event: Any) -> None:
            # What is dropped may come from anywhere.
            if event.args in among and event.args != card_id:
                await self._move(str(event.args), card_id, among)
                self._on_change()

        box.props["draggable"] = "true"
        box.props["data-card"] = card_id
        box.on("dragstart", js_handler=_DRAG)
        box.on("dragover", js_handler="(event) => event.preventDefault()")
        box.on("drop", drop, js_handler=_DROP)

    async def reset(self) -> None:
        """Forget all that the person arranged."""
        if await view.ask(text("Arrange everything as at first?"), yes=text("Reset"), danger=True):
            self._cards.clear()
            await self._save()
            self._on_change()

    async def _act(self, act: sb.Callback, pressed: tuple[str, int]) -> None:
        await act()
        self._show_again(pressed)

    def _show_again(self, pressed: tuple[str, int]) -> None:
        self._on_change()
        # The button was made again; the keyboard stays at it.
        if (button := self._buttons.get(pressed)) is not None:
            view.client.run_javascript(f"strawberry.focus({button.html_id!r})")

    async def _change(self, card_id: str, among: Sequence[str], **changed: Any) -> None:
        await self._place(card_id, among)
        # Checked again: what is not a name is refused here, not by the hub.
        known = self.card(card_id).model_dump()
        self._cards[card_id] = HomeCard.model_validate({**known, **changed})
        await self._save()

    def _moving(self, card_id: str, to: int, among: Sequence[str]) -> sb.Callback | None:
        return partial(self._move, card_id, among[to], among) if 0 <= to < len(among) else None

    async def _move(self, card_id: str, target: str, among: Sequence[str]) -> None:
        """Put a card where another one is, which makes room for it."""
        await self._place(card_id, among)
        order = list(self._cards)
        place = order.index(target)
        order.remove(card_id)
        order.insert(place, card_id)
        self._cards = {each: self._cards[each] for each in order}
        await self._save()

    async def _place(self, card_id: str, among: Sequence[str]) -> None:
        """Assign places to the cards beside a changed one, so that it alone moves.

        Raises:
            Conflict: If another window has changed this card, or the order, since the page showed them.
        """
        shown = self.card(card_id)
        # Another window may have changed other cards since.
        await self.load()
        if self.card(card_id) != shown or self.ordered(among, str) != list(among):
            self._on_change()
            raise Conflict(
                "another window has changed this card or the order",
                hint="The page now shows it. Change it again if you still want to.",
            )
        for card_id in among:
            self._cards.setdefault(card_id, HomeCard(id=card_id))

    async def _save(self) -> None:
        cards = list(self._cards.values())[:MOST_HOME_CARDS]
        await view.api(arrange_home, HomeLayout(cards=cards))

    async def _rename(self, card_id: str, names: dict[str, str], title: str, among: Sequence[str]) -> None:
        card = self.card(card_id)

        async def save() -> None:
            given = {name: (field.value or "").strip() for name, field in fields.items()}
            own = {name: value for name, value in given.items() if value and value != names[name]}
            called = (field_of_card.value or "").strip()
            await self._change(card_id, among, name="" if called == title else called, names=own)
            self._show_again((card_id, _RENAME))

        with view.form(text("Rename"), save):
            field_of_card = text_field(text("Card"), card.name or title)
            field_of_card.props(f"maxlength={MAX_LABEL} autofocus")
            if names:
                sb.Words("h3", text("Its values and controls"), "sb-h3")
            fields = {
                name: text_field(usual, card.names.get(name, usual)).props(f"maxlength={MAX_LABEL}")
                for name, usual in list(names.items())[:MOST_HOME_NAMES]
            }
