"""What of a device waits for approval: folded by skill, each with what changes."""

import difflib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import groupby, islice

from nicegui import ui

from contracts.answers.devices import Item
from hub_registry.devices.review import digest_of
from hub_registry.http.devices import decide, show_review
from hub_web import sb
from hub_web.parts.names import load_names
from hub_web.texts import text
from hub_web.view import view


class Review:
    """The card of what waits; nothing where nothing does.

    Args:
        device: Its id.
        on_decided: Called after a decision.
    """

    def __init__(self, device: str, on_decided: sb.Callback) -> None:
        self._device = device
        self._on_decided = on_decided
        self._place = ui.element("div")

    async def show(self) -> None:
        """Show what waits now."""
        items = (await view.api(show_review, self._device)).items
        names = await load_names() if items else None
        self._place.clear()
        if names is None:
            return
        skills_of = {
            name: list(of)
            for name, of in groupby(sorted(items, key=lambda each: each.skill), lambda each: each.skill)
        }
        with self._place, sb.card(text("To approve"), icon="rule", classes="sb-attention") as tools:
            with tools:
                self._buttons(items)
            sb.note(text("Its skills declare this. Until you approve it, what is stricter counts."))
            for name, of in skills_of.items():
                label = names.label(self._device, name)(name)
                self._skill(name, label, of, is_alone=len(skills_of) == 1)

    def _buttons(self, items: Sequence[Item], skill: str = "", label: str = "") -> None:
        """Make the buttons for all items, or for those of a skill."""
        digest = digest_of(items)
        deny, approve = (text("Deny {name}"), text("Approve {name}")) if skill else ("", "")
        view.button(
            text("Deny"),
            partial(self._decide, digest, False, skill),
            kind="flat" if skill else "danger",
            tip=deny.format(name=label),
        )
        view.button(
            text("Approve") if skill else text("Approve all"),
            partial(self._decide, digest, True, skill),
            icon="check",
            kind="plain" if skill else "primary",
            tip=approve.format(name=label),
        )

    def _skill(self, name: str, label: str, items: Sequence[Item], *, is_alone: bool) -> None:
        with ui.element("details").classes("sb-card sb-fold") as fold:
            with ui.element("summary"):
                with sb.stack().classes("sb-tight sb-grow"):
                    sb.Words("h3", label, "sb-h3")
                    sb.Words("p", _summary(items), "sb-muted")
                if all(item.denied for item in items):
                    sb.badge(text("denied"), "bad")
                ui.icon("expand_more")
            content = sb.stack()

        def build() -> None:
            for item in items:
                _item(item)
            if not is_alone:
                with sb.row():
                    self._buttons(items, name, label)

        if is_alone:
            fold.props["open"] = True
        sb.build_unfolded(fold, content, build)

    async def _decide(self, digest: str, approve: bool, skill: str) -> None:
        await view.api(decide, self._device, digest, approve, skill)
        await self.show()
        await self._on_decided()


def _summary(items: Sequence[Item]) -> str:
    count = Counter(item.kind for item in items)
    words = {
        "flags": text.count(count["flags"], "{n} action may do more", "{n} actions may do more"),
        "sentence": text.count(count["sentence"], "{n} sentence", "{n} sentences"),
        "provider": text("serves beside other devices"),
        "uses": text.count(count["uses"], "calls {n} action elsewhere", "calls {n} actions elsewhere"),
        "documentation": text.count(count["documentation"], "{n} description", "{n} descriptions"),
    }
    return " · ".join(words[kind] for kind in count)


def _item(item: Item) -> None:
    kinds = {
        "flags": text("may do more than before"),
        "sentence": text("hears a sentence with free text on every device"),
        "provider": text("serves beside other devices"),
        "uses": text("calls this on other devices"),
        "documentation": text("tells the assistant what it does"),
    }
    with sb.stack().classes("sb-tight"):
        with sb.row():
            sb.Words("span", ".".join(filter(None, (item.skill, item.method))), "sb-mono sb-strong")
            sb.Words("span", kinds[item.kind])
            if item.denied:
                sb.badge(text("denied"), "bad")
        _difference(item.before, item.after, label=text("What changes"))


def _difference(before: str, after: str, *, label: str) -> None:
    """Show what is new and what is gone, line by line; a sign says it as well as the colour."""
    old, new = before.splitlines(), after.splitlines()
    # With everything around the changes, behind three lines of a header.
    lines = islice(difflib.unified_diff(old, new, n=len(old), lineterm=""), 3, None)
    with sb.named(ui.element("pre").classes("sb-code sb-wrap").props("tabindex=0 role=region"), label):
        # All of it, however long: what is not shown could be approved unseen.
        for sign, alike in groupby(lines, key=lambda line: line[0]):
            tone = {"+": "sb-added", "-": "sb-gone"}.get(sign, "")
            sb.Words("code", "".join(f"{sign} {line[1:]}\n" for line in alike), tone)
