"""People: one's own account, password and tokens; for admins all people, and what was called by whom."""

from functools import partial
from typing import Final
from zoneinfo import available_timezones

from contracts.answers.people import CodeAnswer, TokenSummary, UserAnswer
from hub_registry.access.accounts import UserChange
from hub_registry.http.sessions import change_self
from hub_registry.http.tokens import add_token, list_tokens, revoke_token
from hub_registry.http.users import add_user, change_user, list_users, make_code, remove_user
from hub_web import limits, sb
from hub_web.parts.calls.forms import choice, text_field
from hub_web.parts.files import in_browser
from hub_web.parts.invitation import shown_once
from hub_web.parts.network import qr_code
from hub_web.shell import page
from hub_web.texts import language_names, text
from hub_web.view import view

_ROLE_TONES: Final[dict[str, sb.Tone]] = {"admin": "accent", "member": "good", "guest": "plain"}
_DAY_S: Final = 24 * 60 * 60


@page("/people", title="People", icon="group", menu=110, width="wide")
async def people() -> None:
    """Show the account of who is logged in, and to admins those of others."""
    view.link(text("Audit log: who logged in, called and changed what"), "/audit")
    with sb.grid(least=340).classes("sb-tops"):
        _account()
        _password()
    await _tokens()
    if view.is_admin:
        await _people()


# -- one's own account ----------------------------------------------------------------------------


def _account() -> None:
    user = view.user
    with sb.card(text("Your account"), icon="person") as tools:
        with tools:
            sb.badge(_role(user.role), _ROLE_TONES[user.role])
        name = text_field(text("Name"), user.display_name)
        shown = {"": text("as the household"), **language_names()}
        begin = (user.language or "").split("-")[0]
        language = choice(text("Language"), shown, begin if begin in shown else "")
        # Not all that Python knows are listed.
        present = user.time_zone or ""
        names = sorted({"", present, *available_timezones()})
        zones = {each: each or text("as the household") for each in names}
        zone = choice(text("Time zone"), zones, present)

        async def save() -> None:
            await view.api(change_self, name.value.strip(), language.value, zone.value or "")
            view.go("/people")

        with sb.actions():
            view.button(text("Save"), save, kind="primary")


def _password() -> None:
    with sb.card(text("Password and sessions"), icon="password"):
        old = text_field(text("Current password"), secret=True).props("autocomplete=current-password")
        new = text_field(text("New password"), hint=text("At least 10 characters"), secret=True)
        new.props("autocomplete=new-password")

        async def change() -> None:
            # The browser asks itself, as it gets another cookie.
            given = {"old": old.value, "new": new.value}
            await in_browser("ask", "PUT", "/api/session/password", given, "/people")

        async def leave() -> None:
            more = text("All your browsers are logged out, this one as well.")
            if await view.ask(text("Log out everywhere?"), more, yes=text("Log out everywhere"), danger=True):
                await in_browser("ask", "DELETE", "/api/sessions", None, "/login")

        with sb.actions():
            view.button(text("Log out everywhere"), leave, kind="danger")
            view.button(text("Change password"), change, kind="primary")


def _role(role: str) -> str:
    return {"admin": text("Admin"), "member": text("Member"), "guest": text("Guest")}.get(role, role)


# -- tokens ---------------------------------------------------------------------------------------


async def _tokens() -> None:
    """Show the tokens of who is logged in."""
    scopes = _scopes()

    async def show() -> None:
        table.show(
            [
                partial(_token_name, each),
                ", ".join(scopes.get(name, name) for name in each.scope.split()),
                view.ago(each.issued_at),
                view.at(each.expires_at),
                None if each.current else partial(revoke_button, each),
            ]
            for each in await view.api(list_tokens, valid=True)
        )

    def revoke_button(token: TokenSummary) -> None:
        tip = text("Revoke {name}", name=_named(token))
        view.button(text("Revoke"), partial(revoke, token), kind="danger", tip=tip)

    async def revoke(token: TokenSummary) -> None:
        question, more = text("Revoke {name}?", name=_named(token)), text("What uses it stops at once.")
        if await view.ask(question, more, yes=text("Revoke"), danger=True):
            await view.api(revoke_token, token.jti)
            await show()

    with sb.card(text("Tokens and sessions"), icon="key") as tools:
        with tools:
            view.button(text("New token"), partial(_new_token, show), icon="add")
        sb.note(text("Where you are logged in, and the programs that act for you with a token."))
        columns = [text("Name"), text("Rights"), text("Issued"), text("Expires"), ""]
        table = sb.Table(columns, label=text("Tokens and sessions"))
    await show()


def _scopes() -> dict[str, str]:
    return {
        "chat": text("talk to the assistant"),
        "call": text("call skills"),
        "confirm": text("confirm calls"),
        "say_yes": text("confirm with a “yes” in a conversation"),
        "register": text("add devices"),
        "admin": text("all that admins may"),
        "metrics": text("read metrics"),
    }


def _named(token: TokenSummary) -> str:
    return token.name or token.jti[: limits.TOKEN_ID_SHOWN]


def _token_name(token: TokenSummary) -> None:
    with sb.row():
        sb.cut("span", _named(token), title=token.jti)
        if token.session:
            sb.badge(text("browser"), icon="computer")
        if token.current:
            sb.badge(text("this one"), "accent")


async def _new_token(show: sb.Callback) -> None:
    own = ("chat", "call", "confirm", "say_yes")
    admins = ("admin", "metrics") if view.is_admin else ()
    allowed = {name: _scopes()[name] for name in (*own, *admins)}

    async def add() -> None:
        made = await view.api(add_token, name.value.strip(), scopes.value, days.value * _DAY_S)
        _once(text("Token of {name}", name=name.value.strip()), made.token)
        await show()

    with view.form(text("New token"), add, yes=text("Make it")):
        name = text_field(text("Name"), hint=text("Of the program that gets it"))
        scopes = choice(text("Rights"), allowed, ["chat"], several=True)
        days = choice(text("Good for"), {each: text("{n} days", n=each) for each in (7, 30, 365)}, 30)


def _once(title: str, secret: str, more: str = "", *, drawn: bool = False) -> None:
    """Show what is shown only now.

    Args:
        drawn: Whether as a QR code, too.
    """
    with shown_once(title, secret):
        if more:
            sb.Words("p", more)
        if drawn:
            qr_code(secret, text("The link as a QR code"))
        sb.code(secret, label=title).classes("sb-wrap")
        sb.note(text("It is shown only now."))


# -- all people -----------------------------------------------------------------------------------


async def _people() -> None:
    """Show all people, to an admin."""

    async def show() -> None:
        table.show(
            [
                each.name,
                partial(sb.badge, _role(each.role), _ROLE_TONES[each.role]),
                text.of("a password", "chosen") if each.has_password else text("not chosen yet"),
                partial(_person_tools, each, show),
            ]
            for each in await view.api(list_users)
        )

    with sb.card(text("People of this home"), icon="group") as tools:
        with tools:
            add = partial(edit_person, None, show)
            view.button(text("Add a person"), add, icon="person_add", kind="primary")
        columns = [text("Name"), text("Role"), text("Password"), ""]
        table = sb.Table(columns, label=text("People of this home"))
    await show()


def _person_tools(user: UserAnswer, show: sb.Callback) -> None:
    with sb.row().classes("sb-end"):
        tip = text("Code for {name}", name=user.name)
        view.button(text("Code"), partial(_code, user), icon="pin", tip=tip)
        if user.id != view.user.id:
            tip = text("Edit {name}", name=user.name)
            view.button(text("Edit"), partial(edit_person, user, show), tip=tip)
            tip = text("Remove {name}", name=user.name)
            view.button(text("Remove"), partial(_remove, user, show), kind="danger", tip=tip)


async def edit_person(user: UserAnswer | None, show: sb.Callback) -> None:
    """Ask for the name and the role of a person, or of a new one."""

    async def save() -> None:
        called = name.value.strip()
        if user is None:
            _show_code(await view.api(add_user, called, role.value))
        elif (called, role.value) != (user.name, user.role):
            changed = UserChange(
                name=called if called != user.name else None,
                role=role.value if role.value != user.role else None,
            )
            await view.api(change_user, user.id, changed)
        await show()

    roles = {
        "member": text("Member: what is theirs or shared"),
        "guest": text("Guest: looks, and changes nothing"),
        "admin": text("Admin: everything"),
    }
    title = text("Add a person") if user is None else text("Edit {name}", name=user.name)
    with view.form(title, save, yes=text("Add") if user is None else ""):
        name = text_field(text("Name"), user.name if user else "").props("autofocus")
        role = choice(text("Role"), roles, user.role if user else "member")


async def _code(user: UserAnswer) -> None:
    _show_code(await view.api(make_code, user.id))


def _show_code(made: CodeAnswer) -> None:
    more = text(
        "{name} opens this link and chooses a password. It works once, until {time}.",
        name=made.user.name,
        time=view.at(made.expires_at),
    )
    if not made.reachable:
        more += " " + text("It works on this machine only: allow other machines on the page System.")
    title = text("One-time code for {name}", name=made.user.name)
    _once(title, made.link, more, drawn=made.reachable)


async def _remove(user: UserAnswer, show: sb.Callback) -> None:
    more = text(
        "Their sessions end and what is theirs is deleted; their devices are revoked and become yours."
    )
    if await view.ask(text("Remove {name}?", name=user.name), more, yes=text("Remove"), danger=True):
        await view.api(remove_user, user.id)
        await show()
