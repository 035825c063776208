"""Integrations and installed skills of a device, for its owner and admins."""

from functools import partial

from contracts.answers.skills import InstallationAnswer, InstalledAnswer, IntegrationAnswer, VersionAnswer
from contracts.errors import CallError
from hub_server.http import installation as operations
from hub_web import sb
from hub_web.parts.files import FileField
from hub_web.texts import text
from hub_web.view import part, view


class Installation:
    """The integrations and installed skills of one device.

    Args:
        device: Its id.

    Attributes:
        turned_on: The skill of the integration that was turned on here; empty for none.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._place = sb.stack()
        self.turned_on = ""

    async def show(self) -> None:
        """Show them; nothing where the device does not answer."""
        try:
            self._show(await view.api(operations.show_installation, self._device))
        except CallError:
            self._place.clear()  # a device that is offline, or has an older version

    def _show(self, found: InstallationAnswer) -> None:
        with sb.refilled(self._place):
            with sb.card(text("Integrations"), icon="extension"), sb.grid(least=300):
                for integration in found.integrations:
                    self._integration(integration)
            with sb.card(text("Installed skills"), icon="download_done"):
                for skill in found.installed:
                    self._installed(skill)
                if found.takes_uploads:
                    with sb.row():
                        chosen = FileField(text("Archive of a skill (.zip or .tar.gz)"))
                        view.button(text("Install"), partial(self._upload, chosen), icon="upload")
                else:
                    sb.note(
                        text("A person at the device can allow uploads in the menu of its Strawberry icon.")
                    )
                    sb.note(text("Without a screen there, see “Skills of others” in the manual."))

    def _integration(self, integration: IntegrationAnswer) -> None:
        name, about = _words().get(integration.name, (integration.name, integration.about))
        with sb.stack().classes("sb-tight"):
            view.switch(name, integration.on, partial(self._switch, integration)).classes("sb-wide-switch")
            sb.Words("p", about, "sb-muted sb-small")

    async def _switch(self, integration: IntegrationAnswer, on: bool) -> None:
        found = await view.api(operations.switch_integration, self._device, integration.name, on)
        self.turned_on = integration.skill if on else ""
        self._show(found)
        view.notify(text("It is loaded in a few seconds.") if on else text("It is off."))

    def _installed(self, skill: InstalledAnswer) -> None:
        states = {"changed": text("changed since"), "missing": text("its files are missing")}
        with sb.stack().classes("sb-tight"):
            with sb.row():
                sb.Words("p", f"{skill.name} {skill.version}", "sb-strong")
                if skill.state:
                    sb.badge(states[skill.state], "warn")
            sb.Words("p", skill.source, "sb-mono sb-small sb-text")
            with sb.row():
                update, remove = partial(self._install, skill.name), partial(self._remove, skill.name)
                view.button(text("Update"), update, tip=text("Update {name}", name=skill.name))
                view.button(text("Remove …"), remove, tip=text("Remove {name}", name=skill.name), kind="flat")

    async def _upload(self, chosen: FileField) -> None:
        await chosen.send(f"/api/devices/{part(self._device)}/installation/uploads/")
        await self._install((await view.api(operations.show_installation, self._device)).uploaded)

    async def _install(self, name: str) -> None:
        found = await view.api(operations.show_version, self._device, name)
        what = f"{found.name} {found.version}".strip()
        question = text("Install {name}?", name=what)
        yes = text("Install")
        if found.before is not None:
            question, yes = text("Update to {name}?", name=what), text("Update")
        more = text("Its code runs on this device with the rights of its user.")
        if await view.ask(question, more, yes=yes, show=partial(_show_version, found)):
            self._show(await view.api(operations.install_version, self._device, name, found.digest))
            view.notify(text("It is loaded in a few seconds."))

    async def _remove(self, name: str) -> None:
        more = text("Its data and settings are kept.")
        if await view.ask(text("Remove {name}?", name=name), more, yes=text("Remove"), danger=True):
            self._show(await view.api(operations.remove_skill, self._device, name))


def _show_version(found: VersionAnswer) -> None:
    sb.Words("p", found.source, "sb-mono sb-small sb-text")
    if found.before is None:
        sb.note(text("What its files declare:"))
    elif found.is_same:
        sb.note(text("Its files are those that are installed."))
    else:
        sb.note(text("Changes since {version}:", version=found.before))
    with sb.stack().classes("sb-tight"):
        # Wrapped: what a method may do must not be cut off on a phone.
        for line in found.changes or [text("It declares nothing else.")]:
            sb.Words("p", line, "sb-mono sb-small sb-text")
    if found.overwrites:
        sb.note(text("Its files were changed on the device: that is lost."))


def _words() -> dict[str, tuple[str, str]]:
    return {
        "calendar": (text("Calendar"), text("Appointments of CalDAV and ICS calendars.")),
        "commands": (text("Commands"), text("Programs that you allow, each started by its name.")),
        "files": (text("Files"), text("Read and search files in folders that you choose.")),
        "notifications": (text("Notifications"), text("Short messages on the screen of this device.")),
        "printer": (text("Printer"), text("Print text on a printer in the network.")),
        "reader": (text("Web pages and news"), text("Read web pages, and news of feeds.")),
        "wake_on_lan": (text("Wake-on-LAN"), text("Turn on computers in the network.")),
        "weather": (text("Weather"), text("The weather now and in the next days.")),
    }
