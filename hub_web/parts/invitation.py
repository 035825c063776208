"""What is shown only once, to copy: a token, a link, and the ready command with which a device joins."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from contracts.answers.devices import InvitationAnswer
from hub_web import sb
from hub_web.texts import text
from hub_web.view import view


def ready_line(invitation: InvitationAnswer) -> str:
    # Its token is in no list of processes.
    return f"HUB_DEVICE_TOKEN={shlex.quote(invitation.token)} {invitation.command}"


@contextmanager
def shown_once(title: str, secret: str, *, wide: bool = False) -> Iterator[None]:
    """Open a dialog with a secret that can be copied; the block makes its content."""
    with view.dialog(title, wide=wide) as box:
        yield
        with sb.actions():
            view.button(text("Copy"), partial(view.copy, secret), icon="content_copy")
            view.button(text("Done"), box.close, kind="primary")


def show_invitation(name: str, invitation: InvitationAnswer) -> None:
    """Open a dialog with an enrolment token."""
    line = ready_line(invitation)
    with shown_once(text("Let {name} join", name=name), line, wide=True):
        if not invitation.reachable:
            sb.problem(
                text("This address works on this machine only."),
                text("Allow other machines on the page System."),
            )
        sb.Words("p", text("Run this in a terminal of the device. It works once."))
        sb.code(line, label=text("Command")).classes("sb-wrap")
        sb.facts(
            (text("Expires"), view.at(invitation.expires_at)), (text("Key of the hub"), invitation.hub_key)
        )
