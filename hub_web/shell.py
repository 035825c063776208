"""The frame of every page: header, navigation, theme; and the decorator that makes a function a page."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from nicegui import app, ui
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from chat.http.errors import status_of
from contracts.answers.live import Event
from contracts.errors import StrawberryError, Unauthorized
from hub_live.events import NotificationData
from hub_web import limits, sb
from hub_web.door import THEME_COOKIE, Theme, asset
from hub_web.parts.notices.notices import notice_path, notice_words
from hub_web.parts.notices.push import show_push
from hub_web.texts import text
from hub_web.view import SEEN_COOKIE, view

Width = Literal["normal", "wide", "full"]
Build = Callable[..., Awaitable[Any]]

_THEMES: Final[dict[Theme, tuple[str, str]]] = {
    "auto": ("brightness_auto", "Theme: as on this device"),
    "light": ("light_mode", "Theme: light"),
    "dark": ("dark_mode", "Theme: dark"),
}

# Quasar holds back who asks for the focus while one of these fades in or out, and moves it there afterwards:
# away from the field in which a person types by then.
for _fading in (ui.dialog, ui.menu, ui.select, ui.tooltip):
    _fading.default_props("transition-duration=0")


class page(ui.page):  # noqa: N801  as NiceGUI's, which it replaces
    """Makes a function the page at a path; it gets by name the parts of the path in braces.

    Args:
        title: In English; it is translated.
        icon: A name of https://fonts.google.com/icons; the font is in NiceGUI.
        menu: Its place in the navigation, from 0; each hundred begins a group. None for a page that is
            reached from another one.
        admin: Whether only an admin is shown it.
        writer: Whether guests, who change nothing, are not shown it.
    """

    title: str

    def __init__(
        self,
        path: str,
        *,
        title: str,
        icon: str = "",
        menu: int | None = None,
        admin: bool = False,
        writer: bool = False,
        width: Width = "normal",
    ) -> None:
        super().__init__(path, title=title, response_timeout=limits.BUILD_S)
        self.icon, self.menu, self.width = icon, menu, width
        self.admin, self.writer = admin, writer

    def __call__(self, build: Build) -> Build:
        """Register a function."""
        PAGES[self.path] = self

        async def show(request: Request) -> Response | None:
            try:
                with _frame(self):
                    if self.is_shown:
                        await build(**request.path_params)
                    else:
                        view.client.status_code = 403
                        by = (
                            text("Only admins can open it.") if self.admin else text("Guests cannot open it.")
                        )
                        with sb.empty("lock", text("This page is not for you"), by):
                            view.link(text("To the start page"), "/")
            except Unauthorized:
                return RedirectResponse(view.href("/login"), 303)
            return None

        super().__call__(show)
        return build

    @property
    def is_shown(self) -> bool:
        return (view.is_admin or not self.admin) and (view.may_change or not self.writer)

    def resolve_dark(self) -> bool | None:
        return {"auto": None, "light": False, "dark": True}[view.theme]

    def resolve_language(self) -> Any:
        return "en-US" if view.language == "en" else view.language


PAGES: Final[dict[str, page]] = {}
"""All pages by their path."""


@contextmanager
def _frame(info: page) -> Iterator[None]:
    """Build everything around a page; what is built in the block is its content."""
    client, base = ui.context.client, view.base_path
    client.title = f"{text(info.title)} · Strawberry"
    style, script = asset("strawberry.css", base), asset("strawberry.js", base)
    icon = asset("strawberry.svg", base)
    ui.add_head_html(
        f'<link rel="icon" type="image/svg+xml" href="{icon}"><link rel="stylesheet" href="{style}">'
        f'<link rel="manifest" href="{base}/manifest.webmanifest">'
        f'<link rel="apple-touch-icon" href="{base}/icon-192.png"><meta name="theme-color" content="#b8283f">'
        f'<script defer src="{script}" data-base="{base}" data-hub="{view.api.hub_name}"></script>'
    )
    with ui.header().classes("sb-header"):
        open_menu = sb.icon_button("menu", text("Menu")).classes("sb-menu-button")
        with ui.element("a").classes("sb-brand").props(f'href="{base}/"'):
            ui.element("img").props(f'src="{icon}" alt="" width=28 height=28')
            sb.Words("span", "Strawberry")
        ui.element("div").classes("sb-grow")
        bell = _Bell()
        _theme_button()
        _person_menu()
    # Without a value NiceGUI would ask the browser for it, and a slow one would not answer in time.
    with ui.left_drawer(value=False, bordered=True).props("width=240 show-if-above") as drawer:
        drawer.classes("sb-drawer")
        _navigation(info)
    open_menu.on_click(drawer.toggle)
    with ui.footer().classes("sb-footer"):
        _bar(info, drawer)
    # It goes to the top of the layout, as header and drawer do.
    ui.skip_link(text("Skip to the content"), target=client.content)
    progress = sb.named(
        ui.element("div").classes("sb-progress sb-hidden").props("role=progressbar"), text("Working")
    )
    # Shown by the browser alone while it has no connection.
    sb.Words(
        "p", text("The hub is away. Your home goes on; this page reconnects by itself."), "sb-away-bar"
    ).props("role=alert")
    with ui.element("div").classes(f"sb-page sb-{info.width}") as content:
        title = sb.Words("h1", text(info.title), "sb-h1")
    view.show_in(client, title=title, progress=progress)
    bell.follow()
    with content:
        try:
            yield
        except Unauthorized:
            raise
        except StrawberryError as error:
            status, _ = status_of(error)
            client.status_code = status if status in (403, 404) else 200
            sb.failure(error)


def _entries() -> list[page]:
    shown = (each for each in PAGES.values() if each.menu is not None and each.is_shown)
    return sorted(shown, key=lambda each: each.menu or 0)


def _is_here(entry: page, here: page) -> bool:
    return entry.path == here.path or (entry.path != "/" and here.path.startswith(f"{entry.path}/"))


def _entry(entry: page, here: page) -> None:
    with view.anchor(entry.path, "sb-entry") as made:
        if _is_here(entry, here):
            made.classes("sb-here").props("aria-current=page")
        ui.icon(entry.icon)
        sb.Words("span", text(entry.title))


def _navigation(here: page) -> None:
    with sb.named(ui.element("nav").classes("sb-nav"), text("Pages")):
        group = 0
        for entry in _entries():
            if (entry.menu or 0) // 100 != group:
                group = (entry.menu or 0) // 100
                ui.element("hr").classes("sb-rule")
            _entry(entry, here)


def _bar(here: page, drawer: ui.left_drawer) -> None:
    with sb.named(ui.element("nav").classes("sb-bar"), text("Most used pages")):
        shown = _entries()[: limits.PHONE_ENTRIES]
        for entry in shown:
            _entry(entry, here)
        with ui.element("button").classes("sb-entry").props("type=button") as more:
            more.on("click", drawer.toggle)
            if not any(_is_here(entry, here) for entry in shown):
                more.classes("sb-here").props("aria-current=true")
            ui.icon("more_horiz")
            sb.Words("span", text("More"))


class _Bell:
    """The person's notifications: a toast for each new one, and the last ones behind a button."""

    def __init__(self) -> None:
        self._listed: dict[int, Event[NotificationData]] = {}
        self._seen = view.seen
        self._button = sb.icon_button("notifications_none", "", view.showing(self._show))
        with self._button:
            ui.tooltip(text("Notifications"))
            self._mark = ui.badge(color="primary").props("floating aria-hidden=true")
        self._count()

    def follow(self) -> None:
        """List the stored ones, and take in what comes while the page is open."""
        view.on_event(NotificationData, self._heard)
        view.follow_events(self._read)

    def _heard(self, event: Event[NotificationData]) -> None:
        if self._take(event):
            self._count()
            view.notify(": ".join(notice_words(event)), kind="info")

    async def _read(self) -> None:
        for event in await view.stored_events(NotificationData, last=limits.NOTIFICATIONS_LISTED, own=True):
            self._take(event)
        self._count()

    def _take(self, event: Event[NotificationData]) -> bool:
        """Add an event to the list, and return whether it is the person's own."""
        if event.user != view.user.id:
            return False
        self._listed[event.id] = event
        if len(self._listed) > limits.NOTIFICATIONS_LISTED:
            del self._listed[min(self._listed)]
        return True

    def _count(self) -> None:
        new = sum(id_ > self._seen for id_ in self._listed)
        self._mark.set_text(str(new))
        self._mark.set_visibility(new > 0)
        sb.named(self._button, text("Notifications, {n} new", n=new) if new else text("Notifications"))

    async def _show(self) -> None:
        await self._read()
        with view.dialog(text("Notifications"), close=text("Close")):
            if not self._listed:
                sb.note(text("There is nothing yet: watchers and timers tell you something here."))
            with ui.element("ul").classes("sb-entries"):
                for id_, event in sorted(self._listed.items(), reverse=True):
                    with ui.element("li").classes("sb-entry-row"), ui.element("div"):
                        *subject, said = notice_words(event)
                        with view.anchor(notice_path(event), "sb-plain-link"):
                            sb.Words("p", said, "sb-strong" if id_ > self._seen else "")
                        sb.Words("p", " · ".join([*subject, view.at(event.at)]), "sb-muted sb-small")
            await show_push()
        self._seen = max(self._listed, default=self._seen)
        _keep(SEEN_COOKIE, str(self._seen))
        self._count()


def _keep(cookie: str, value: str) -> None:
    """Set a cookie of this browser for a year."""
    path = view.base_path or "/"
    ui.run_javascript(f"document.cookie = '{cookie}={value};path={path};max-age=31536000;samesite=strict'")


def _theme_button() -> None:
    chosen = view.theme
    order: list[Theme] = ["auto", "light", "dark"]

    def show() -> None:
        icon, label = _THEMES[chosen]
        sb.named(button, text(label)).set_icon(icon)

    def turn() -> None:
        nonlocal chosen
        chosen = order[(order.index(chosen) + 1) % len(order)]
        _keep(THEME_COOKIE, chosen)
        ui.run_javascript(f"Quasar.Dark.set({{auto: 'auto', light: false, dark: true}}['{chosen}'])")
        show()

    button = sb.icon_button("", "").on_click(turn)
    show()


def _person_menu() -> None:
    user = view.user
    with sb.icon_button("account_circle", text("Account of {name}", name=user.display_name)), ui.menu():
        sb.Words("div", user.display_name, "sb-menu-name")
        view.menu_item(text("Account and people"), lambda: view.go("/people"))
        view.menu_item(text("Log out"), lambda: ui.run_javascript("strawberry.logOut()"))


def add_missing_page() -> None:
    """Add the page of all paths that no page has; it must be the last one."""

    @page("/{path:path}", title="There is no such page")
    async def missing(path: str) -> None:
        view.client.status_code = 404
        with sb.empty("travel_explore", text("There is nothing here"), f"/{path}"):
            view.link(text("To the start page"), "/")


def set_up_controls() -> None:
    """Set colours and behaviour of NiceGUI's own controls."""
    # Quasar's own bar at every request of a script; ours shows when something is under way.
    app.config.quasar_config["loadingBar"] = {"skipHijack": True}
    app.colors(primary="#b8283f", positive="#1d7a46", negative="#b3261e", warning="#8a5a00", info="#3a5f95")
