"""Notifications on the screen of a Linux desktop (org.freedesktop.Notifications)."""

from html import escape
from typing import Annotated, Final

from pydantic import Field

from spoke.session_bus import open_session_bus
from strawberry_skills import Skill, skill_method

_SERVICE: Final = "org.freedesktop.Notifications"
_OBJECT: Final = "/org/freedesktop/Notifications"
_DEFAULT_TIME: Final = -1
_CRITICAL: Final = 2
"""Urgency of what stays on the screen until a person closes it."""


class NotificationSkill(Skill):
    """Shows notifications on the screen of this computer."""

    labels = {
        "de": {"NotificationSkill": "Bildschirmnachricht", "show": "Anzeigen", "important": "Wichtig"},
        "en": {"NotificationSkill": "Screen notification"},
    }

    @skill_method(
        sentences={
            "en": ["show {text} on [the|my] screen", "(show|send) [the] notification {text}"],
            "de": ["(zeige|zeig) {text} auf dem Bildschirm", "(zeige|zeig) [die] Nachricht {text}"],
        },
        responses={"en": "It is on the screen.", "de": "Es steht auf dem Bildschirm."},
    )
    async def show(
        self,
        text: Annotated[str, Field(min_length=1, max_length=1_000)],
        title: Annotated[str, Field(max_length=100)] = "Strawberry",
        important: bool = False,
    ) -> None:
        """Show a notification on the screen.

        Args:
            text: What it says.
            title: Its first line.
            important: It stays until a person closes it.
        """
        async with open_session_bus("Notifications") as bus:
            from dbus_fast import Variant

            (abilities,) = await bus.call(_SERVICE, _OBJECT, _SERVICE, "GetCapabilities")
            body = escape(text, quote=False) if "body-markup" in abilities else text
            hints = {"urgency": Variant("y", _CRITICAL)} if important else {}
            arguments = ["Strawberry", 0, "", title, body, [], hints, _DEFAULT_TIME]
            await bus.call(_SERVICE, _OBJECT, _SERVICE, "Notify", "susssasa{sv}i", arguments)
