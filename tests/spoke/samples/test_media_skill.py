"""Media players, driven over a real D-Bus daemon."""

import os
import shutil
import socket
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest

from contracts.errors import CallError, ErrorCode
from tests.requirements import require

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="D-Bus sessions are a thing of Linux desktops"
)


@asynccontextmanager
async def player(name, *, status="Playing", silent=False):
    """Run a player with two tracks on the session bus."""
    from dbus_fast import PropertyAccess, Variant
    from dbus_fast.aio import MessageBus
    from dbus_fast.annotations import DBusDict, DBusDouble, DBusStr
    from dbus_fast.service import ServiceInterface, dbus_method, dbus_property

    class Root(ServiceInterface):
        def __init__(self):
            super().__init__("org.mpris.MediaPlayer2")

        @dbus_property(access=PropertyAccess.READ)
        def Identity(self) -> DBusStr:  # noqa: N802
            return name.title()

    class Controls(ServiceInterface):
        def __init__(self):
            super().__init__("org.mpris.MediaPlayer2.Player")
            self.status = status
            self.track = 0
            self.volume = 0.5

        @dbus_method()
        def Play(self) -> None:  # noqa: N802
            self.status = "Playing"

        @dbus_method()
        def Pause(self) -> None:  # noqa: N802
            self.status = "Paused"

        @dbus_method()
        def Next(self) -> None:  # noqa: N802
            self.track += 1

        @dbus_method()
        def Previous(self) -> None:  # noqa: N802
            self.track -= 1

        @dbus_property(access=PropertyAccess.READ)
        def PlaybackStatus(self) -> DBusStr:  # noqa: N802
            return self.status

        @dbus_property(access=PropertyAccess.READ)
        def Metadata(self) -> DBusDict:  # noqa: N802
            return {
                "xesam:title": Variant("s", f"Track {self.track}"),
                "xesam:artist": Variant("as", ["Somebody"]),
                "mpris:length": Variant("x", 90_000_000),
            }

        @dbus_property()
        def Volume(self) -> DBusDouble:  # noqa: N802
            return self.volume

        @Volume.setter  # type: ignore[no-redef]
        def Volume(self, value: DBusDouble):  # noqa: N802
            self.volume = value

    bus = await MessageBus().connect()
    controls = Controls()
    if not silent:
        bus.export("/org/mpris/MediaPlayer2", Root())
        bus.export("/org/mpris/MediaPlayer2", controls)
    await bus.request_name(f"org.mpris.MediaPlayer2.{name}")
    try:
        yield controls
    finally:
        bus.disconnect()
        await bus.wait_for_disconnect()


async def test_a_player_is_controlled(session_bus, call):
    async with player("vlc") as vlc:
        assert await call("MediaSkill.now_playing") == {
            "player": "vlc",
            "status": "Playing",
            "title": "Track 0",
            "artists": ["Somebody"],
            "album": "",
            "length_s": 90.0,
            "volume": 50,
        }
        assert (await call("MediaSkill.pause"))["status"] == "Paused"
        assert vlc.status == "Paused"
        assert (await call("MediaSkill.play"))["status"] == "Playing"
        assert (await call("MediaSkill.next_track"))["title"] == "Track 1"
        assert (await call("MediaSkill.previous_track"))["title"] == "Track 0"


async def test_the_volume_is_set_and_changed_within_its_bounds(session_bus, call):
    async with player("vlc") as vlc:
        assert await call("MediaSkill.set_volume", percent=30) == 30
        assert vlc.volume == pytest.approx(0.3)
        assert await call("MediaSkill.change_volume", by=-10) == 20
        assert await call("MediaSkill.change_volume", by=100) == 100
        assert vlc.volume == pytest.approx(1.0)


async def test_the_player_that_plays_is_meant_unless_another_is_named(session_bus, call):
    async with player("amarok", status="Paused") as amarok, player("vlc") as vlc:
        assert [(each["name"], each["title"]) for each in await call("MediaSkill.list_players")] == [
            ("amarok", "Amarok"),
            ("vlc", "Vlc"),
        ]
        await call("MediaSkill.pause")
        assert (amarok.status, vlc.status) == ("Paused", "Paused")
        await call("MediaSkill.play", player="Ama")
        assert (amarok.status, vlc.status) == ("Playing", "Paused")


async def test_a_player_that_refuses_does_not_hide_the_others(session_bus, call):
    async with player("broken", silent=True), player("vlc"):
        assert [each["name"] for each in await call("MediaSkill.list_players")] == ["vlc"]
        assert (await call("MediaSkill.now_playing"))["player"] == "vlc"
        with pytest.raises(CallError, match="broken refused"):
            await call("MediaSkill.pause", player="broken")


@pytest.fixture
def sound_server(tmp_path, monkeypatch):
    """PulseAudio with a loudspeaker that is not heard."""
    program = shutil.which("pulseaudio")
    require(program is not None and shutil.which("pactl") is not None, "apt-get install pulseaudio")
    socket_file = tmp_path / "native"
    modules = (f"module-native-protocol-unix socket={socket_file} auth-anonymous=1", "module-null-sink")
    options = ["-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--disable-shm=yes"]
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    server = subprocess.Popen(
        [program, *options, *(word for module in modules for word in ("-L", module))],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    monkeypatch.setenv("PULSE_SERVER", f"unix:{socket_file}")
    monkeypatch.setenv("HOME", str(tmp_path))
    while subprocess.run(["pactl", "info"], capture_output=True, check=False).returncode:
        assert server.poll() is None
    yield
    server.terminate()
    server.wait()


def _is_muted() -> bool:
    command = ["pactl", "get-sink-mute", "@DEFAULT_SINK@"]
    return (
        b"yes"
        in subprocess.run(command, capture_output=True, check=True, env=os.environ | {"LC_ALL": "C"}).stdout
    )


async def test_without_a_player_the_volume_is_that_of_the_loudspeaker(sound_server, session_bus, call):
    assert await call("MediaSkill.set_volume", percent=40) == 40
    assert await call("MediaSkill.turn_down", by=15) == 25
    await call("MediaSkill.mute")
    assert _is_muted()
    await call("MediaSkill.unmute")
    assert not _is_muted()
    async with player("vlc") as vlc:
        assert await call("MediaSkill.set_volume", percent=90) == 90
        assert vlc.volume == pytest.approx(0.9)
    assert await call("MediaSkill.change_volume", by=5) == 30
    with pytest.raises(CallError, match="no media player runs"):
        await call("MediaSkill.set_volume", percent=10, player="vlc")


async def test_without_a_sound_server_the_error_says_what_is_needed(session_bus, call, monkeypatch, tmp_path):
    monkeypatch.setenv("PULSE_SERVER", f"unix:{tmp_path}/none")
    with pytest.raises(CallError, match=r"volume of this computer|sound server") as caught:
        await call("MediaSkill.mute")
    assert "PulseAudio or PipeWire" in caught.value.hint


@pytest.mark.slow
async def test_a_bus_that_never_answers_is_an_error_too(call, tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        deaf.listen()
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/deaf")
        with pytest.raises(CallError, match="no D-Bus session"):
            await call("MediaSkill.play")


async def test_without_a_player_the_error_says_so(session_bus, call):
    with pytest.raises(CallError, match="no media player runs") as caught:
        await call("MediaSkill.play")
    assert caught.value.code is ErrorCode.SKILL_ERROR
    async with player("vlc"):
        with pytest.raises(CallError, match="no player 'mpv'") as caught:
            await call("MediaSkill.play", player="mpv")
        assert caught.value.hint == "There are: vlc."


@pytest.mark.parametrize("address", [None, "", "unix:path=/nowhere/bus", "nonsense"])
async def test_without_a_session_bus_the_error_says_what_is_needed(address, call, monkeypatch, tmp_path):
    if address is None:
        monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
        monkeypatch.delenv("DISPLAY", raising=False)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    else:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    with pytest.raises(CallError, match="no D-Bus session") as caught:
        await call("MediaSkill.list_players")
    assert "desktop session" in caught.value.hint
