"""The samples for hardware: off without it, and with mock pins, a pseudo-terminal and a camera's program."""

import asyncio
import os
import pty
import tty
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_core.search.directory import RegisteredSkill
from agent_core.skills.loading.exposure import expose
from agent_core.skills.running.runner import SkillRunner
from agent_core.skills.skill import Skill, SkillContext, attach
from contracts.devices.registration import Registration
from contracts.errors import CallError
from hub_registry.devices.review import SAMPLES, definition_digest
from spoke.samples import serial_bridge
from spoke.samples.camera import CameraSkill
from spoke.samples.gpio import GpioSkill
from spoke.samples.serial_bridge import SerialSkill
from tests.agent_core.house import load_skills
from tests.spoke.samples.conftest import RecordingSink

_PATIENCE_S = 60

ALL: tuple[type[Skill], ...] = (GpioSkill, SerialSkill, CameraSkill)


class Hosted:
    """A skill that runs, and what it published."""

    def __init__(self, kind: type[Skill], runner: SkillRunner, sink: RecordingSink) -> None:
        self._name = kind.__name__
        self._runner = runner
        self.sink = sink

    async def call(self, method: str, *, confirmed: bool = False, **arguments: Any) -> Any:
        return await self._runner.run(self._name, method, [], arguments, confirmed=confirmed)

    async def state(self, name: str, value: Any) -> None:
        """Wait until a value was published."""
        async with asyncio.timeout(_PATIENCE_S):
            while self.sink.states.get(f"{self._name}/{name}") != value:  # noqa: ASYNC110  a thread publishes it
                await asyncio.sleep(0.01)


@asynccontextmanager
async def hosted(kind: type[Skill], folder: Path) -> AsyncIterator[Hosted]:
    sink, skill = RecordingSink(), kind()
    attach(skill, SkillContext(data_dir=folder, sink=sink))
    loaded, problems = expose(skill)
    assert problems == []
    async with SkillRunner([loaded]) as runner:
        assert runner.problems == []
        yield Hosted(kind, runner, sink)


@pytest.fixture(autouse=True)
def no_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for hardware where there is none, whatever this machine has."""
    monkeypatch.setattr("pathlib.Path.glob", _glob_without_devices(Path.glob))
    monkeypatch.delenv("GPIOZERO_PIN_FACTORY", raising=False)


def _glob_without_devices(glob: Any) -> Any:
    return lambda path, pattern, **options: [] if str(path) == "/dev" else glob(path, pattern, **options)


def test_without_hardware_they_are_left_out_and_no_problem(tmp_path: Path, samples_folder: Path) -> None:
    def context(name: str) -> SkillContext:
        return SkillContext(data_dir=tmp_path / name, sink=RecordingSink())

    loaded = load_skills([samples_folder], make_context=context)
    assert loaded.problems == []
    assert {kind.__name__ for kind in ALL} & {skill.name for skill in loaded.skills} == set()


def test_the_hub_knows_them_by_their_definitions(tmp_path: Path) -> None:
    for kind in ALL:
        skill = kind()
        attach(skill, SkillContext(data_dir=tmp_path, sink=RecordingSink()))
        loaded, problems = expose(skill)
        assert problems == []
        sent = Registration.model_validate_json(loaded.registration.model_dump_json())
        digest = definition_digest(RegisteredSkill.of(sent, ""))
        assert digest in SAMPLES.get(kind.__name__, ()), f"add {digest} for {kind.__name__} to SAMPLES"


async def test_only_pins_with_a_name_are_driven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpiozero import Device
    from gpiozero.pins.mock import MockFactory

    monkeypatch.setenv("GPIOZERO_PIN_FACTORY", "mock")
    assert GpioSkill.can_run()
    Device.pin_factory = MockFactory()
    try:
        async with hosted(GpioSkill, tmp_path) as gpio:
            with pytest.raises(CallError, match="there is no output bell"):
                await gpio.call("turn_on", name="bell")
            named = {"outputs": {"bell": 17}, "inputs": {"button": 27}}
            await gpio.call("change_settings", confirmed=True, **named)
            await gpio.call("turn_on", name="bell")
            assert await gpio.call("pins") == {"bell": True, "button": False}
            assert Device.pin_factory.pin(17).state
            await gpio.call("pulse", name="bell", seconds=0.01)
            assert not Device.pin_factory.pin(17).state
            await gpio.state("bell", "off")
            Device.pin_factory.pin(27).drive_low()
            await gpio.state("button", "on")
            Device.pin_factory.pin(27).drive_high()
            await gpio.state("button", "off")
            await gpio.call("change_settings", confirmed=True, outputs={})
            assert await gpio.call("pins") == {"button": False}
    finally:
        Device.pin_factory.close()
        Device.pin_factory = None


async def test_lines_of_a_microcontroller_become_values_and_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    monkeypatch.setattr(serial_bridge, "_ports", lambda: [os.ttyname(theirs)])
    monkeypatch.setattr(serial_bridge, "_READ_S", 0.05)
    assert SerialSkill.can_run()
    try:
        async with hosted(SerialSkill, tmp_path) as bridge:
            await bridge.state("connected", True)
            assert await bridge.call("port") == os.ttyname(theirs)
            os.write(ours, b"humidity=nan\ntemperature=2")
            await bridge.state("humidity", "nan")
            # Longer than a read waits: a line that comes in two parts is one all the same.
            await asyncio.sleep(2 * serial_bridge._READ_S)
            os.write(ours, b"1.5\nhello\xff there\nmode: eco\n")
            await bridge.state("temperature", 21.5)
            await bridge.state("mode", "eco")
            assert ("line", {"text": "hello\ufffd there"}) in bridge.sink.events
            await bridge.call("send", line="led on")
            assert await asyncio.to_thread(os.read, ours, 100) == b"led on\n"
            with pytest.raises(CallError, match="printable"):
                await bridge.call("send", line="two\nlines")
    finally:
        os.close(ours)
        os.close(theirs)


async def test_pictures_stay_on_the_device_and_the_oldest_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not CameraSkill.can_run()
    programs = tmp_path / "bin"
    programs.mkdir()
    camera = programs / "fswebcam"
    camera.write_text(
        '#!/bin/sh\nfor file; do :; done\n[ ! -e "$0.broken" ] || { echo "no camera" >&2; exit 1; }\n'
        'printf picture > "$file"\n'
    )
    camera.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    async with hosted(CameraSkill, tmp_path / "data") as skill:
        await skill.call("change_settings", confirmed=True, keep=2)
        taken = [await skill.call("take_picture") for _ in range(3)]
        kept = [each["file"] for each in await skill.call("list_pictures")]
        assert kept == [each["file"] for each in reversed(taken[1:])]
        assert [name for name, _ in skill.sink.events] == ["picture_taken"] * 3
        assert Path(kept[0]).stat().st_mode & 0o777 == 0o600
        (programs / "fswebcam.broken").touch()
        with pytest.raises(CallError, match="no camera"):
            await skill.call("take_picture")
