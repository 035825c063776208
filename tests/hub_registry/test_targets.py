from datetime import UTC, datetime

import pytest

from agent_core.search import targets
from agent_core.search.directory import RegisteredSkill
from contracts.devices.presence import DeviceStatus
from contracts.devices.registration import Method, MethodFlags, Registration
from contracts.errors import CallError, ErrorCode
from hub_registry.devices.devices import Device
from hub_registry.devices.directory import Directory
from identity.keys import KeyPair


def method(name: str = "set_volume", **flags: bool) -> Method:
    return Method(
        name=name,
        signature=f"{name}(level: int = 30) -> None",
        doc="Plays music.\n\nAnd more.",
        parameters={"type": "object", "properties": {"level": {"type": "integer"}}},
        flags=MethodFlags(**flags),
    )


def skill(*methods: Method, name: str = "MediaSkill", agnostic: bool = False) -> RegisteredSkill:
    registration = Registration(
        skill=name, doc="Music.", device_agnostic=agnostic, methods=list(methods or (method(),))
    )
    return RegisteredSkill.of(registration, "digest")


@pytest.fixture
def home() -> Directory:
    """A radio that is there and a TV that is not; neither has a skill yet."""
    directory = Directory()
    for key in ("radio", "tv"):
        entry = directory.put(
            Device(
                id=key,
                owner="admin",
                display_name=key.upper(),
                key=key,
                aliases=(),
                area=None,
                floor=None,
                public_key=KeyPair.generate().public,
                revoked=False,
                last_seen=None,
                created_at=datetime.now(UTC),
                trusted=True,
            )
        )
        if key == "radio":
            online = DeviceStatus(state="online", epoch=1, connection=1, seq=0)
            entry.presence.hear(online, retained=False, at=0)
    return directory


@pytest.mark.parametrize(
    "name",
    [
        "devices.tv.MediaSkill.set_volume",
        "device_manager.tv.MediaSkill.set_volume()",
        "tv.MediaSkill.set_volume",
        "device.MediaSkill.set_volume",
        "MediaSkill.set_volume",
        "set_volume",
    ],
)
def test_a_method_is_described_by_path_or_by_name(home, name):
    home.put_skill("tv", skill(method(idempotent=True)))
    assert targets.describe(home, name, current="tv") == (
        "def set_volume(level: int = 30) -> None:\n"
        '    """\n    Plays music.\n\n    And more.\n    """\n'
        "# path: devices.tv.MediaSkill.set_volume\n"
        "# devices: tv\n"
        "# flags: idempotent"
    )


@pytest.mark.parametrize(("current", "expected"), [("tv", "devices.tv"), (None, "devices.radio")])
def test_where_no_device_is_named_the_current_one_is_meant_and_else_one_that_is_there(
    home, current, expected
):
    for key in ("radio", "tv"):
        home.put_skill(key, skill())
    found = targets.find_named(home, "set_volume", current=current)
    assert found.path == f"{expected}.MediaSkill.set_volume"


def test_the_very_same_skill_is_one_with_all_its_devices(home):
    home.put_skill("radio", skill())
    home.put_skill("tv", skill(method().model_copy(update={"parameters": {"type": "object"}})))
    assert "# devices: radio\n" in targets.describe(home, "radio.MediaSkill.set_volume") + "\n"
    home.put_skill("tv", skill())
    assert "# devices: radio, tv" in targets.describe(home, "radio.MediaSkill.set_volume")


def test_what_any_device_serves_is_on_the_hub_and_as_strict_as_the_strictest(home):
    home.put_skill("radio", skill(method(read_only=True), agnostic=True))
    home.put_skill("tv", skill(method(confirm=True, untrusted_output=True), agnostic=True))
    found = targets.find_named(home, "MediaSkill.set_volume", current="radio")
    assert found.path == "devices.hub.MediaSkill.set_volume"
    assert found.method.flags == MethodFlags(confirm=True, untrusted_output=True)


@pytest.mark.parametrize(
    ("name", "key", "devices"),
    [
        ("MediaSkill", "radio", "radio, tv"),
        ("device.MediaSkill", "tv", "tv"),
        ("devices.tv.MediaSkill", "tv", "tv"),
    ],
)
def test_a_class_is_described_with_its_methods(home, name, key, devices):
    for each in ("radio", "tv"):
        home.put_skill(each, skill())
    assert targets.describe(home, name, current="tv" if name.startswith("device.") else None) == (
        'class MediaSkill:\n    """\n    Music.\n    """\n'
        "    def set_volume(level: int = 30) -> None: ...  # Plays music.\n"
        f"# path: devices.{key}.MediaSkill\n"
        f"# devices: {devices}"
    )
    with pytest.raises(CallError, match="MediaSkil") as refused:
        targets.describe(home, "MediaSkil")
    assert "MediaSkill" in refused.value.hint


def test_a_skill_is_told_as_a_whole(home):
    for key in ("radio", "tv"):
        home.put_skill(key, skill(method(), method("stop", destructive=True)))
    told = targets.skill_info(home, "MediaSkill", current="tv")
    assert (told["name"], told["docstring"], told["devices"]) == ("MediaSkill", "Music.", ["tv", "radio"])
    assert told["functions"][1] == {
        "name": "stop",
        "path": "devices.tv.MediaSkill.stop",
        "signature": "stop(level: int = 30) -> None",
        "summary": "Plays music.",
        "flags": ["destructive"],
    }


def test_one_method_is_told_where_a_skill_was_asked_for(home):
    home.put_skill("tv", skill())
    told = targets.skill_info(home, "set_volume")
    assert told["parent_class"] == "MediaSkill"
    assert told["docstring"] == "Plays music.\n\nAnd more."


@pytest.mark.parametrize(
    "name",
    ["", "tv", "devices..x.y", "a.b.c.d.e", "devices.tv.NoSkill.x", "hub.No.x", "device.A.b", "os.system"],
)
def test_what_names_nothing_is_an_unknown_skill(home, name):
    for find in (targets.describe, targets.find_path):
        with pytest.raises(CallError) as refused:
            find(home, name, current=None)
        assert refused.value.code is ErrorCode.UNKNOWN_SKILL


def test_an_unknown_name_lists_the_nearest(home):
    home.put_skill("tv", skill())
    with pytest.raises(CallError) as refused:
        targets.find_named(home, "setvolume")
    assert "set_volume" in refused.value.hint
