from dataclasses import replace
from datetime import timedelta

import pytest

from agent_core.finder import SkillFinder
from agent_core.search.directory import RegisteredSkill
from agent_core.sentences.index import SentenceCall, SentenceChoice
from contracts.devices.presence import DeviceStatus
from contracts.devices.registration import Method, Registration
from contracts.errors import CallError, ErrorCode
from hub_registry.devices.devices import Device
from hub_registry.devices.directory import Directory
from hub_registry.storage.tables import now
from identity.keys import KeyPair
from tests.hub_registry.spokes import find


def device(name: str, key: str, **changes) -> Device:
    given = {
        "id": key,
        "owner": "admin",
        "display_name": name,
        "key": key,
        "aliases": (),
        "area": None,
        "floor": None,
        "public_key": KeyPair.generate().public,
        "revoked": False,
        "last_seen": None,
        "created_at": now(),
        "trusted": True,
        **changes,
    }
    return Device(**given)


def skill(
    name="MediaSkill", *methods: str, agnostic=False, doc="Plays music.\n\nAnd more.", sentences=None
) -> RegisteredSkill:
    registration = Registration(
        skill=name,
        device_agnostic=agnostic,
        methods=[
            Method(
                name=method,
                signature=f"{method}(level: int = 30) -> None",
                doc=doc,
                parameters={"type": "object", "properties": {"level": {"type": "integer"}}},
                sentences=sentences or {},
            )
            for method in methods or ("set_volume",)
        ],
    )
    return RegisteredSkill.of(registration, f"{name}{methods}{agnostic}{doc}")


class Home:
    """A directory with a TV that is on and a radio that is off."""

    def __init__(self) -> None:
        self.directory = Directory()
        self.add("TV", "tv", online=True, aliases=("Telly",))
        self.add("Kitchen radio", "kitchen_radio", online=False)

    def add(self, name, key, *, online, **changes):
        entry = self.directory.put(device(name, key, **changes))
        if online:
            entry.presence.hear(
                DeviceStatus(state="online", epoch=1, connection=1, seq=0), retained=False, at=0
            )
        entry.last_heartbeat = now()
        return entry


@pytest.fixture
def home() -> Home:
    return Home()


@pytest.mark.parametrize("name", ["tv", "TV", "telly", " Telly "])
def test_a_device_is_found_by_whatever_a_person_calls_it(home, name):
    assert home.directory.resolve(name).id == "tv"


def test_a_key_leads_to_whichever_device_has_it_now(home):
    # Both renamed, and one takes the name that the other gave up.
    home.directory.put(device("Old telly", "old_telly", id="tv"))
    home.directory.put(device("TV", "tv", id="kitchen_radio"))
    home.directory.put(device("Older telly", "older_telly", id="tv"))
    assert home.directory.resolve("tv").id == "kitchen_radio"
    assert home.directory.resolve("older_telly").id == "tv"

    home.directory.drop("kitchen_radio")
    assert home.directory.resolve("tv").id == "tv"
    with pytest.raises(CallError):
        home.directory.resolve("old_telly")


def test_an_unknown_device_lists_the_nearest(home):
    with pytest.raises(CallError) as refused:
        home.directory.resolve("kitchen_radios")
    assert refused.value.code is ErrorCode.UNKNOWN_SKILL
    assert "kitchen_radio" in refused.value.hint


def test_an_unknown_skill_says_where_it_is(home):
    home.directory.put_skill("kitchen_radio", skill())
    with pytest.raises(CallError) as refused:
        home.directory.find("tv", "MediaSkill", "set_volume")
    assert refused.value.hint == "it is on kitchen_radio"


def test_an_unknown_method_lists_the_nearest(home):
    home.directory.put_skill("tv", skill())
    with pytest.raises(CallError) as refused:
        home.directory.find("tv", "MediaSkill", "volume")
    assert "set_volume" in refused.value.hint


def test_a_device_that_is_offline_is_named_with_the_alternatives(home):
    for key in ("tv", "kitchen_radio"):
        home.directory.put_skill(key, skill())
    with pytest.raises(CallError) as refused:
        home.directory.find_connected("kitchen_radio", "MediaSkill", "set_volume")
    assert refused.value.code is ErrorCode.OFFLINE
    assert refused.value.message.startswith("Kitchen radio is offline, last seen 0 s ago")
    assert refused.value.hint == "MediaSkill.set_volume is also on tv"


def test_candidates_are_connected_and_the_most_recently_heard_comes_first(home):
    later = home.add("Speaker", "speaker", online=True)
    later.last_heartbeat = now() + timedelta(seconds=5)
    for key in ("tv", "kitchen_radio", "speaker"):
        home.directory.put_skill(key, skill(agnostic=True))
    found = home.directory.candidates("MediaSkill", "set_volume")
    assert [each.entry.key for each in found] == ["speaker", "tv"]


def test_a_skill_that_is_not_device_agnostic_has_no_candidates(home):
    home.directory.put_skill("tv", skill())
    with pytest.raises(CallError) as refused:
        home.directory.candidates("MediaSkill", "set_volume")
    assert (refused.value.code, refused.value.hint) == (ErrorCode.UNKNOWN_SKILL, "name one: it is on tv")


def test_no_candidate_that_is_there_is_an_offline_error_that_names_them_all(home):
    home.directory.put_skill("kitchen_radio", skill(agnostic=True))
    with pytest.raises(CallError, match="kitchen_radio") as refused:
        home.directory.candidates("MediaSkill", "set_volume")
    assert refused.value.code is ErrorCode.OFFLINE


def test_a_new_key_ends_what_the_old_one_signed(home):
    home.directory.put_skill("tv", skill())
    entry = home.directory.put(device("TV", "tv"))
    assert (entry.skills, entry.connected) == ({}, False)


def test_renaming_keeps_presence_and_skills(home):
    home.directory.put_skill("tv", skill())
    known = home.directory.resolve("tv").device
    home.directory.put(Device(**{**vars(known), "display_name": "Projector", "key": "projector"}))
    entry = home.directory.resolve("projector")
    assert (entry.id, entry.connected, list(entry.skills)) == ("tv", True, ["MediaSkill"])


def test_a_revoked_device_has_no_key_to_trust_and_takes_no_calls(home):
    known = home.directory.resolve("tv").device
    home.directory.put(Device(**{**vars(known), "revoked": True}))
    assert home.directory.public_key("tv") is None
    assert home.directory.resolve("tv").unavailable == "revoked"


def test_of_several_devices_the_only_one_online_is_taken(home, search):
    for key in ("tv", "kitchen_radio"):
        home.directory.put_skill(key, skill(sentences={"en": ["play some music"]}))
    said = search.match("play some music", language="en", current=None)
    assert isinstance(said, SentenceCall)
    assert said.target.device == "tv"
    home.add("Speaker", "speaker", online=True)
    home.directory.put_skill("speaker", skill(sentences={"en": ["play some music"]}))
    assert isinstance(search.match("play some music", language="en", current=None), SentenceChoice)
    named = search.match("play some music on the kitchen radio", language="en", current=None)
    assert isinstance(named, SentenceCall)
    assert named.target.device == "kitchen_radio"


async def test_a_revoked_device_is_neither_found_nor_understood(home, search):
    home.directory.put_skill("tv", skill(sentences={"en": ["play some music"]}))
    known = home.directory.resolve("tv").device
    home.directory.put(Device(**{**vars(known), "revoked": True}))
    assert await find(search, "volume") == ()
    assert search.match("play some music", language="en", current=None) is None


@pytest.fixture
def search(home):
    made = SkillFinder(home.directory, expiry_s=60)
    yield made
    made.close()


async def test_search_follows_the_directory(home, search):
    home.directory.put_skill("tv", skill())
    assert [found.path for found in await find(search, "volume")] == ["devices.tv.MediaSkill.set_volume"]
    home.directory.drop_skill("tv", "MediaSkill")
    assert await find(search, "volume") == ()
    home.directory.put_skill("tv", skill())
    home.directory.drop("tv")
    assert await find(search, "volume") == ()


async def test_a_device_whose_skills_cannot_be_indexed_is_shown_it_and_hides_no_others(home):
    for key in ("tv", "kitchen_radio"):
        home.directory.put_skill(key, skill())
    tv = home.directory.resolve("tv")
    broken = tv.skills["MediaSkill"].registration.model_copy(update={"methods": None})
    tv.skills["MediaSkill"] = replace(tv.skills["MediaSkill"], registration=broken)
    finder = SkillFinder(home.directory, on_problem=home.directory.note_problem)
    (found,) = await find(finder, "volume")
    finder.close()
    assert found.devices == ("kitchen_radio",)
    assert "cannot be indexed" in tv.problems[0].message
    assert not home.directory.resolve("kitchen_radio").problems


async def test_a_wrong_sentence_is_shown_until_the_skill_is_registered_anew(home):
    home.directory.put_skill("tv", skill())
    tv = home.directory.resolve("tv")
    home.directory.note_problem("tv", "MediaSkill.set_volume: it lacks {level}")
    home.directory.note_problem("tv", "a message was too long")
    home.directory.put_skill("tv", skill())
    assert [each.message for each in tv.problems] == ["a message was too long"]


async def test_the_same_skill_on_two_devices_is_found_once_with_the_current_device_first(home, search):
    for key in ("tv", "kitchen_radio"):
        home.directory.put_skill(key, skill())
    (found,) = await find(search, "volume", current="kitchen_radio")
    assert found.devices == ("kitchen_radio", "tv")
    assert found.unavailable == "kitchen_radio: offline"


async def test_an_offline_device_stays_in_the_search_until_its_skills_expire(home, search):
    home.directory.put_skill("kitchen_radio", skill())
    (found,) = await find(search, "volume")
    assert found.unavailable == "kitchen_radio: offline"
    home.directory.resolve("kitchen_radio").last_heartbeat = now() - timedelta(seconds=61)
    search.expire()
    assert await find(search, "volume") == ()
    assert search.silent() == ["Kitchen radio"]


async def test_skills_that_expired_come_back_with_a_sign_of_life(home, search):
    home.directory.put_skill("kitchen_radio", skill())
    entry = home.directory.resolve("kitchen_radio")
    entry.last_heartbeat = now() - timedelta(seconds=61)
    search.expire()
    entry.last_heartbeat = now()
    search.expire()
    assert len(await find(search, "volume")) == 1


async def test_a_renamed_device_is_found_by_its_new_name(home, search):
    home.directory.put_skill("tv", skill())
    known = home.directory.resolve("tv").device
    home.directory.put(Device(**{**vars(known), "display_name": "Projector", "key": "projector"}))
    assert (await find(search, "volume"))[0].path == "devices.projector.MediaSkill.set_volume"
