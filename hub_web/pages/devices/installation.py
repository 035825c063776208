"""Integrations of a device that can be turned on, for its owner and admins."""

from functools import partial

from contracts.answers.skills import InstallationAnswer, IntegrationAnswer
from contracts.errors import CallError, StrawberryError
from hub_server.http.installation import show_installation, switch_integration
from hub_web.parts.calls.forms import switch
from hub_web.parts.layout import Words, card, grid, refilled, stack
from hub_web.texts import text
from hub_web.view import view


class Installation:
    """The integrations of one device.

    Args:
        device: Its id.

    Attributes:
        turned_on: The skill of the integration that was turned on here; empty for none.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._place = stack()
        self.turned_on = ""

    async def show(self) -> None:
        """Show them; nothing where the device does not answer."""
        try:
            self._show(await view.api(show_installation, self._device))
        except CallError:
            self._place.clear()  # a device that is offline, or has an older version

    def _show(self, found: InstallationAnswer) -> None:
        with refilled(self._place), card(text("Integrations"), icon="extension"), grid(least=300):
            for integration in found.integrations:
                self._integration(integration)

    def _integration(self, integration: IntegrationAnswer) -> None:
        name, about = _words().get(integration.name, (integration.name, integration.about))
        with stack().classes("sb-tight"):
            switch(name, integration.on, partial(self._switch, integration)).classes("sb-wide-switch")
            Words("p", about, "sb-muted sb-small")

    async def _switch(self, integration: IntegrationAnswer, on: bool) -> None:
        async with view.busy():
            try:
                found = await view.api(switch_integration, self._device, integration.name, on)
            except StrawberryError as error:
                view.fail(error)
                await self.show()
                return
            self.turned_on = integration.skill if on else ""
            self._show(found)
            view.notify(text("It is loaded in a few seconds.") if on else text("It is off."))


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
