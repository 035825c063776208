"""What a browser gets before a session: the pages to log in and to choose a password, and our static files.

A static file is addressed by its content, so that browsers keep it.
"""

import asyncio
import hashlib
import json
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Final, Literal, cast, get_args

from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, Response

from chat.http.guard import page_policy
from hub_web.joining.files import FILES, FROM_HUB, WHEELS, file_to_open, how_to_open, terminal_lines
from hub_web.joining.wheel import make_wheel, wheel_name
from hub_web.texts import LANGUAGE, text

Theme = Literal["auto", "light", "dark"]
THEME_COOKIE: Final = "strawberry_theme"

ASSETS: Final = "/_strawberry/"
"""Path of our static files."""

KEPT: Final = "public, max-age=31536000, immutable"
"""``Cache-Control`` of what is addressed by its content or its version."""

_TYPES: Final = {
    "css": "text/css",
    "js": "text/javascript",
    "png": "image/png",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}
FIXED: Final = ("sw.js", "manifest.webmanifest", "icon-192.png", "icon-512.png")
"""Files at a path of their own: the scope of a service worker is its folder, and so is that of the manifest,
by which a phone installs the pages as an application."""
_HEADERS: Final = {"content-security-policy": page_policy(), "cache-control": "no-store"}

_ERRORS: Final = (
    "the name or the password is wrong",
    "the code is wrong, was used, or has expired",
    "too many wrong passwords",
    "too many wrong codes",
    "a password has 10 to 1,000 characters",
)
"""Messages of the session routes, translated for the page."""


def login_page(path: str, connection: HTTPConnection, *, needs_setup: bool) -> HTMLResponse:
    """Return the login page, or the one where a person with a one-time code chooses a password.

    Args:
        needs_setup: Whether no user can log in yet.
    """
    base = connection.scope.get("root_path", "")
    if path == "/setup":
        title, lead = text("Choose your password"), text("With it you log in to your home in this browser.")
        fields = (
            _field("code", text("One-time code"), "one-time-code")
            + _field("name", text("Your name (optional)"), "username", required=False)
            + _field("password", text("Password"), "new-password")
            + _field("again", text("Password again"), "new-password")
        )
        button, below = text("Continue"), text("A password has at least 10 characters.")
    elif needs_setup:
        title, lead = text("Welcome"), text("This home has no users yet.")
        fields, button = "", ""
        below = text(
            "The first admin chooses a password with a link. It stands in the window in which Strawberry was "
            "started, in the line “password”: open it there, or copy it into this browser. If Strawberry "
            "starts with the machine, the command “strawberry users code admin” shows a new link."
        )
    else:
        title, lead = text("Log in"), ""
        fields = _field("name", text("Name"), "username")
        fields += _field("password", text("Password"), "current-password")
        button = text("Log in")
        below = text("Forgotten it? An admin can make a one-time code for you.")
    words = {"unreachable": text("The hub does not answer."), "differ": text("The two passwords differ.")}
    words |= {error: text.sentence(error) for error in _ERRORS}
    said, route = escape(json.dumps(words)), "/api/setup" if path == "/setup" else "/api/session"
    content = f"""{f"<p>{escape(lead)}</p>" if lead else ""}
<form method="post" action="{base}{path}" data-route="{base}{route}">
{fields}
<p id="error" role="alert" hidden></p>
{f"<button>{escape(button)}</button>" if button else ""}
</form>
<p class="quiet">{escape(below)}</p>"""
    script = f'src="{asset("door.js", base)}" data-base="{base}" data-words="{said}"'
    return _framed(title, content, script, connection)


def joining_page(connection: HTTPConnection, *, pin: str) -> HTMLResponse:
    """Return what anybody may read who sets up a device: how it joins this hub.

    Args:
        pin: See `install_lines`.
    """
    base = connection.scope.get("root_path", "")
    url = str(connection.base_url).rstrip("/")
    system = _system_of(connection.headers.get("user-agent", ""))
    if system == "phone":
        shown = text("Open this address on the computer that you want to add:")
        parts = [f'<p>{escape(shown)}</p><div class="big">{_to_copy("", f"{url}/join")}</div>']
        parts += [f'<button type="button" id="share" hidden>{escape(text("Share"))}</button>']
    else:
        parts = [_to_open(base, each) for each in FILES if each == system]
        others = [_to_open(base, each) for each in FILES if each != system]
        lines = [_to_copy(label, line) for label, line in terminal_lines(url, pin).items()]
        lines += [f'<p class="quiet">{escape(text(FROM_HUB))}</p>']
        parts += [_folded(text("Another computer"), others)]
        parts += [_folded(text("With a terminal"), lines, is_open=system not in FILES)]
    then = escape(text("The device shows a code and a fingerprint. An admin admits it on this page:"))
    parts += [f'<p>{then} <a href="{base}/login?next=/join">{escape(text("Log in"))}</a></p>']
    return _framed(text("Add a device"), "\n".join(parts), f'src="{asset("join.js", base)}"', connection)


def _system_of(agent: str) -> str:
    """Return which of `FILES` a browser can open; "phone" for one that adds no device."""
    systems = {"Android": "phone", "iPhone": "phone", "iPad": "phone", "Mac": "macOS", "Windows": "Windows"}
    return next((system for word, system in systems.items() if word in agent), "Linux")


def _to_open(base: str, system: str) -> str:
    label, how = text("Download for {system}", system=system), how_to_open(system)
    path = f"{base}{WHEELS}{FILES[system]}"
    return f'<a class="button" href="{path}" download>{escape(label)}</a><p class="quiet">{escape(how)}</p>'


def _folded(summary: str, parts: list[str], *, is_open: bool = False) -> str:
    return f"<details{' open' * is_open}><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def _to_copy(label: str, line: str) -> str:
    what = escape(text("Copy: {what}", what=label or line))
    return (
        f'<p class="label">{escape(label)}</p><div class="line"><code>{escape(line)}</code>'
        f'<button type="button" data-copied="{escape(text("Copied"))}" aria-label="{what}">'
        f"{escape(text('Copy'))}</button></div>"
    )


def _framed(title: str, content: str, script: str, connection: HTTPConnection) -> HTMLResponse:
    base, theme = connection.scope.get("root_path", ""), theme_of(connection)
    page = _frame().substitute(
        language=LANGUAGE.get(),
        scheme="light dark" if theme == "auto" else theme,
        theme=theme,
        title=escape(title),
        icon=asset("strawberry.svg", base),
        style=asset("door.css", base),
        script=script,
        content=content,
    )
    return HTMLResponse(page, headers=_HEADERS)


def theme_of(connection: HTTPConnection) -> Theme:
    """Return the theme that was chosen in this browser."""
    chosen = connection.cookies.get(THEME_COOKIE)
    return cast(Theme, chosen) if chosen in get_args(Theme) else "auto"


def _field(name: str, label: str, autocomplete: str, *, required: bool = True) -> str:
    kind = "password" if autocomplete.endswith("password") else "text"
    return (
        f'<label for="{name}">{escape(label)}</label>'
        f'<input id="{name}" name="{name}" type="{kind}" autocomplete="{autocomplete}" autocapitalize="none" '
        f'spellcheck="false"{" required" if required else ""}>'
    )


@cache
def _frame() -> Template:
    return Template((files("hub_web") / "door.html").read_text("utf-8"))


@cache
def _content(name: str) -> bytes:
    return (files("hub_web") / "static" / name).read_bytes()


@cache
def _names() -> frozenset[str]:
    return frozenset(file.name for file in (files("hub_web") / "static").iterdir())


@cache
def asset(name: str, base_path: str = "") -> str:
    return f"{base_path}{ASSETS}{hashlib.sha256(_content(name)).hexdigest()[:16]}/{name}"


async def serve_asset(request: Request) -> Response:
    """Answer a request for a static file."""
    name = request.path_params["name"]
    if name not in _names():
        return Response(status_code=404)
    kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    return Response(_content(name), media_type=kind, headers={"cache-control": KEPT})


async def serve_fixed(request: Request) -> Response:
    """Answer a request for a file that a browser looks for again by the same path."""
    name = request.url.path.rpartition("/")[2]
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(_content(name), media_type=kind, headers={"cache-control": "no-cache"})


async def serve_joining(request: Request, *, pin: str) -> Response:
    """Answer a request for the wheel of the version that runs, or for a file that adds a computer with it."""
    name = request.path_params["name"]
    if name in FILES.values():
        content = file_to_open(name, str(request.base_url).rstrip("/"), pin)
        headers = {"cache-control": "no-store", "content-disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)
    if name != wheel_name():
        return Response(status_code=404)
    # It is compressed: the encoding keeps others from compressing it again in the event loop.
    headers = {"cache-control": "no-cache", "content-encoding": "identity"}
    return Response(await asyncio.to_thread(make_wheel), media_type="application/zip", headers=headers)
