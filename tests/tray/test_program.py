"""``strawberry tray`` as a program: icon and menu in a real panel, one instance, a spoke that returns."""

import subprocess
from pathlib import Path
from shutil import which

import pytest

from deploy.cli.client import find_spoke
from deploy.directory import Home
from spoke.installing.installation import Installation
from tests.e2e.house import PATIENCE_S, House, Spoke, wait_for
from tests.requirements import require
from tests.tray.desktop import HINT, Desktop
from tests.tray.program import ITEM, MENU, Program, start


def test_the_icon_in_the_panel_opens_the_window(program: Program, spoke: Spoke, desktop: Desktop) -> None:
    assert next(iter(program.entries())) == "Living room PC: Connected to the hub"
    assert "Connected to the hub" in desktop.ask(ITEM, "/StatusNotifierItem", "ToolTip", program.owner)
    assert desktop.windows() == []
    program.click("Quick chat")
    wait_for(desktop.windows, what="the window")
    desktop.picture("tray-panel")
    wait_for(
        lambda: desktop.run("xdotool", "key", "Escape") or not desktop.windows(), what="the window to go"
    )
    assert program.start_again("--chat") == 0
    wait_for(desktop.windows, what="the window of the one that runs")
    spoke.ask("/api/chat", {"message": "Good morning."})
    wait_for(
        lambda: (
            desktop.call(program.owner, "/MenuBar", f"{MENU}.AboutToShow", "0")
            and "Good morning." in program.entries()
        ),
        what="the conversation in the menu",
    )
    program.click("Open the web UI")
    url = program.house.url
    wait_for(lambda: desktop.opened.exists() and desktop.opened.read_text() == url, what="the web UI")
    program.click("Quit")
    assert program.process.wait(PATIENCE_S) == 0
    # Closing it leaves the spoke serving.
    assert find_spoke(Home(spoke.home)).request("GET", "/api/spoke")["connected"]


def test_it_starts_with_the_session_if_wished(program: Program, desktop: Desktop) -> None:
    file = desktop.home / "config" / "autostart" / "strawberry-tray.desktop"
    program.click("Start with the session")
    wait_for(lambda: file.exists() and file.read_text().endswith("enabled=true\n"), what="the autostart file")
    command = next(line for line in file.read_text().splitlines() if line.startswith("Exec="))
    assert f'"STRAWBERRY_HOME={program.home}"' in command
    assert '"tray"' in command
    program.click("Start with the session")
    wait_for(lambda: not file.exists(), what="the autostart file to go")


def test_a_person_at_the_device_allows_uploads_of_skills(program: Program, spoke: Spoke) -> None:
    installation = Installation(spoke.home)
    program.click("Allow uploads of skills")
    wait_for(lambda: installation.takes_uploads, what="the device to take uploads")
    program.click("Allow uploads of skills")
    wait_for(lambda: not installation.takes_uploads, what="the device to take none")


def test_a_hub_that_is_away_and_a_spoke_that_restarts_are_noticed(program: Program, spoke: Spoke) -> None:
    house = program.house
    house.kill("hub")
    wait_for(lambda: program.tells("Alone: the hub is away"), what="the state without a hub")
    house.begin_hub()
    wait_for(lambda: program.tells("Connected to the hub"), what="the state with the hub")
    house.kill(spoke.id)
    wait_for(lambda: program.tells("The spoke is not running"), what="the state without a spoke")
    house.start_spoke(spoke)
    wait_for(lambda: program.tells("Living room PC: Connected to the hub"), what="the spoke again")


@pytest.mark.parametrize("flags", [("--no-tray",), ()], ids=["by choice", "no tray there"])
def test_without_a_tray_it_is_a_window(
    house: House, spoke: Spoke, bare: Desktop, flags: tuple[str, ...]
) -> None:
    process = start(house, spoke.home, bare, *flags)
    try:
        wait_for(bare.windows, what="the window")
        wait_for(
            lambda: bare.run("xdotool", "key", "alt+F4") or process.poll() is not None, what="the end of it"
        )
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def test_without_a_desktop_it_says_so(house: House, spoke: Spoke) -> None:
    environment = house.environment(spoke.home)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        environment.pop(name, None)
    done = subprocess.run(
        [*house.program, "tray"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "there is no desktop" in done.stderr) == (1, True)


def test_a_panel_without_status_notifiers_has_the_icon_too(
    house: House, spoke: Spoke, tmp_path: Path
) -> None:
    require(bool(which("trayer")), HINT)
    with Desktop(tmp_path / "xembed") as desktop:
        desktop.start("trayer")
        panel = ("xwininfo", "-name", "panel", "-tree")
        desktop.wait_for(lambda: desktop.run(*panel), what="the panel")
        process = start(house, spoke.home, desktop)
        try:

            def icon() -> bool:
                assert process.poll() is None, house.log("tray")
                return '"strawberry-tray"' in desktop.run(*panel)

            desktop.wait_for(icon, what="the icon")
            assert desktop.windows() == []
        finally:
            process.kill()
            process.wait(PATIENCE_S)
