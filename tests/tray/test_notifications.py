"""Questions as notifications of the desktop, against a server that notes them."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

import pytest
from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from tests.e2e.house import PATIENCE_S, House, Spoke, wait_for
from tests.model_server import Reply, Says, Script, SeenRequest, calls
from tests.tray.desktop import Desktop
from tests.tray.program import Program, start
from tray.desktop import notify

NAME = "org.freedesktop.Notifications"
PATH = "/org/freedesktop/Notifications"
MESSAGE = "Let the dog out."


@pytest.fixture
def windowed(house: House, spoke: Spoke, bare: Desktop) -> Iterator[Desktop]:
    """A desktop without a tray, where the program is a window."""
    process = start(house, spoke.home, bare)
    try:
        bare.wait_for(bare.windows, what="the window")
        yield bare
    finally:
        process.kill()
        process.wait(PATIENCE_S)


@pytest.fixture
def renamed(house: House, spoke: Spoke) -> Iterator[str]:
    """A name of the device that would be markup."""
    house.json("devices", "rename", "living_room_pc", "Living room & <PC>")
    yield "Living room & <PC>"
    house.json("devices", "rename", "living_room_pc", "Living room PC")


async def test_a_question_is_a_notification_while_the_window_is_away(
    program: Program, desktop: Desktop, script: Callable[[Script], None], renamed: str
) -> None:
    program.click("Quick chat")
    await ask_and_click(desktop, script, abilities=["actions", "body", "body-markup"], device=escape(renamed))


async def test_without_a_tray_it_is_one_too(
    windowed: Desktop, script: Callable[[Script], None], renamed: str
) -> None:
    await ask_and_click(windowed, script, abilities=["actions", "body"], device=renamed)


async def test_a_bus_that_rejects_the_login_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reject(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    async with await asyncio.start_unix_server(reject, f"{tmp_path}/bus"):
        assert await asyncio.to_thread(notify, "Do this?", "", shown_ms=1) is None


async def ask_and_click(
    desktop: Desktop,
    script: Callable[[Script], None],
    *,
    abilities: list[str],
    device: str,
) -> None:
    """Ask something while the window hides; see the question as a notification, and click on it."""
    is_hidden = threading.Event()

    def answer(seen: SeenRequest) -> Reply:
        if seen.results:
            return Says(text="Refused.")
        is_hidden.wait(PATIENCE_S)
        return calls("python_exec", code="devices.living_room_pc.DoorSkill.open(minutes='3')")

    script(answer)
    bus = await MessageBus(bus_address=desktop.environment["DBUS_SESSION_BUS_ADDRESS"]).connect()
    notified: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()

    def take(message: Message) -> bool:
        if message.message_type != MessageType.METHOD_CALL or message.interface != NAME:
            return False
        if message.member == "Notify":
            bus.send(Message.new_method_return(message, "u", [7]))
            if not notified.done():
                notified.set_result(message.body)
        elif message.member == "GetCapabilities":
            bus.send(Message.new_method_return(message, "as", [abilities]))
        else:
            bus.send(Message.new_method_return(message, "ssss", ["test", "test", "1", "1.2"]))
        return True

    bus.add_message_handler(take)
    await bus.request_name(NAME)
    try:
        await asyncio.to_thread(_ask_and_hide, desktop)
        is_hidden.set()
        async with asyncio.timeout(PATIENCE_S):
            body = await notified
        assert body[3:5] == ["Do this?", f"{device}: Open the door for 3 minutes?"]
        bus.send(Message.new_signal(PATH, NAME, "ActionInvoked", "us", [7, "default"]))
        await asyncio.to_thread(wait_for, desktop.windows, what="the window, by a click on the notification")
    finally:
        is_hidden.set()
        bus.disconnect()


def _ask_and_hide(desktop: Desktop) -> None:
    (window,) = wait_for(desktop.windows, what="the window")
    wait_for(lambda: desktop.run("xdotool", "getwindowfocus").strip() == window, what="the focus")
    desktop.run("xdotool", "type", MESSAGE)
    desktop.run("xdotool", "key", "Return")
    wait_for(lambda: desktop.run("xdotool", "key", "Escape") or not desktop.windows(), what="it to hide")
