"""What a model finds when it looks for a skill."""

import json

import pytest

from agent_core.schemas.nearest import nearest, suggestion
from agent_core.search.catalogue import raised_flags
from agent_core.search.index import IndexedDevice, SkillIndex
from contracts.devices.registration import Method, MethodFlags, Registration


def method(name, doc="", *, parameters=(), sentences=None, flags=None):
    return Method(
        name=name,
        signature=f"{name}({', '.join(parameters)})",
        doc=doc,
        parameters={"type": "object", "properties": {each: {} for each in parameters}},
        positional=list(parameters),
        flags=flags or MethodFlags(),
        sentences=sentences or {},
    )


SEARCH = "Searches for songs in the music library.\n\nAlso by artist."
WAKE = "Play on all speakers, also while the lamp is lit."
LAMP = Registration(
    skill="LampSkill",
    doc="A lamp.",
    methods=[
        method("turn_on", "Switch the light on.", sentences={"de": ["(schalte|mach) [die] Lampe an"]}),
        method("set_brightness", "Make it brighter or dimmer.", parameters=("percent",)),
    ],
)
MUSIC = Registration(
    skill="MusicControlSkill",
    methods=[
        method("set_volume", "Turn it up or down.", parameters=("level",)),
        method(
            "searchSongs",
            "Searches for songs in the music library.\n\nAlso by artist.",
            parameters=("query",),
        ),
        method(
            "wake_up", "Play on all speakers, also while the lamp is lit.", flags=MethodFlags(open_world=True)
        ),
    ],
)
TIME = Registration(skill="TimeSkill", device_agnostic=True, methods=[method("now", "What time is it.")])


@pytest.fixture
def index():
    index = SkillIndex()
    index.set_device(IndexedDevice("pc", "bedroom_pc", ["Bedroom PC", "Schlafzimmer", "upstairs"]))
    index.set_device(IndexedDevice("tv", "tv", ["TV", "Living room"]))
    for device in ("pc", "tv"):
        index.put_skill(device, LAMP)
        index.put_skill(device, TIME)
    index.put_skill("tv", MUSIC)
    yield index
    index.close()


def paths(answer):
    return [result.path for result in answer.results]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("volume", "devices.tv.MusicControlSkill.set_volume"),
        ("search for a song", "devices.tv.MusicControlSkill.searchSongs"),
        ("searchSongs", "devices.tv.MusicControlSkill.searchSongs"),
        ("artists", "devices.tv.MusicControlSkill.searchSongs"),
        ("how bright", "devices.pc.LampSkill.set_brightness"),
        ("schalte die Lampe an", "devices.pc.LampSkill.turn_on"),
        ("Lautstärke volumes", "devices.tv.MusicControlSkill.set_volume"),
    ],
)
def test_everyday_words_find_the_method(query, first, index):
    index.set_device(IndexedDevice("pc", "pc"))
    assert paths(index.search(query, current="pc"))[0] == first


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("it is too dark in here", "devices.bedroom_pc.LampSkill.set_brightness"),
        ("make it louder, please", "devices.tv.MusicControlSkill.set_volume"),
        ("find some tunes", "devices.tv.MusicControlSkill.searchSongs"),
    ],
)
def test_words_that_mean_the_same_find_the_method(query, first, index):
    assert paths(index.search(query))[0] == first


@pytest.mark.parametrize(
    "query", ["renew my passport at the embassy", "do you believe in God", "paint the fence with a brush"]
)
def test_where_nothing_fits_the_answer_is_empty(query, index):
    assert index.search(query).results == ()


def test_a_name_weighs_more_than_a_text(index):
    assert paths(index.search("lamp"))[-1] == "devices.tv.MusicControlSkill.wake_up"


def test_the_same_skill_on_two_devices_is_one_result_with_the_current_device_first(index):
    result = index.search("brightness", current="tv").results[0]
    assert result.path == "devices.tv.LampSkill.set_brightness"
    assert result.devices == ("tv", "bedroom_pc")
    result = index.search("brightness", current="pc").results[0]
    assert result.devices == ("bedroom_pc", "tv")


def test_other_parameters_make_another_skill(index):
    other = Registration(
        skill="LampSkill", methods=[method("set_brightness", "Dim it.", parameters=("level",))]
    )
    index.put_skill("tv", other)
    found = index.search("brightness", current="tv").results[:2]
    assert [result.devices for result in found] == [("tv",), ("bedroom_pc",)]


def test_device_agnostic_skills_show_only_the_hub(index):
    (result,) = index.search("time now").results
    assert (result.path, result.devices) == ("devices.hub.TimeSkill.now", ("hub",))
    index.set_device(IndexedDevice("pc", "bedroom_pc", unavailable="offline"))
    assert not index.search("time now").results[0].unavailable
    index.set_device(IndexedDevice("tv", "tv", unavailable="offline"))
    result = index.search("time now").results[0]
    assert result.unavailable == "bedroom_pc: offline"


def test_an_unavailable_device_stands_last_with_its_reason(index):
    index.set_device(IndexedDevice("pc", "bedroom_pc", unavailable="offline since 10:30"))
    result = index.search("brightness").results[0]
    assert result.devices == ("tv", "bedroom_pc")
    assert not result.unavailable
    assert result.offline == {"bedroom_pc": "offline since 10:30"}


def test_words_of_the_device_and_its_area_count(index):
    result = index.search("brightness in the living room").results[0]
    assert result.devices[0] == "tv"
    assert "devices.bedroom_pc.LampSkill.turn_on" in paths(index.search("Schlafzimmer"))
    index.set_device(IndexedDevice("pc", "bedroom_pc", ["Office"]))
    assert paths(index.search("Schlafzimmer")) == []
    assert paths(index.search("office"))


@pytest.mark.parametrize("query", ["brightnes", "volum", "Brightnessregler"])
def test_what_is_not_a_known_word_is_found_by_its_letters(query, index):
    assert paths(index.search(query))


@pytest.mark.parametrize("query", ["xyzzy", "?!", "ab", "🍓"])
def test_what_is_nowhere_finds_nothing(query, index):
    answer = index.search(query)
    assert (answer.results, answer.more) == ((), 0)


@pytest.mark.parametrize("query", ['volume" OR *', "NEAR(volume", "names : volume", "volume NOT volume"])
def test_the_signs_of_a_query_language_mean_nothing(query, index):
    assert "devices.tv.MusicControlSkill.set_volume" in paths(index.search(query))


def test_an_empty_query_lists_everything_from_the_current_device_on(index):
    assert paths(index.search("", current="tv")) == [
        "devices.tv.LampSkill.turn_on",
        "devices.tv.LampSkill.set_brightness",
        "devices.tv.MusicControlSkill.set_volume",
        "devices.tv.MusicControlSkill.searchSongs",
        "devices.tv.MusicControlSkill.wake_up",
        "devices.hub.TimeSkill.now",
    ]
    assert len(index.search("").results) == 6


def test_registering_again_replaces_what_was_there(index):
    index.put_skill("tv", Registration(skill="MusicControlSkill", methods=[method("pause", "Hold on.")]))
    assert paths(index.search("volume")) == []
    assert paths(index.search("pause")) == ["devices.tv.MusicControlSkill.pause"]
    index.put_skill(
        "tv", Registration(skill="MusicControlSkill", methods=[method("pause", "Silence, please.")])
    )
    assert paths(index.search("silence")) == ["devices.tv.MusicControlSkill.pause"]


def test_what_is_removed_is_not_found(index):
    index.remove_skill("tv", "MusicControlSkill")
    index.remove_skill("tv", "MusicControlSkill")
    assert paths(index.search("volume")) == []
    index.remove_device("pc")
    assert index.search("brightness").results[0].devices == ("tv",)
    index.remove_device("tv")
    assert paths(index.search("")) == []
    with pytest.raises(KeyError):
        index.put_skill("tv", LAMP)


def test_flags_and_summary_are_shown(index):
    (result,) = index.search("speakers").results
    assert raised_flags(result.flags) == ["open_world"]
    assert index.search("songs").results[0].summary == "Searches for songs in the music library."


def test_an_answer_is_bounded_and_says_how_many_more_there_are():
    index = SkillIndex()
    for number in range(200):
        index.set_device(IndexedDevice(f"d{number}", f"device_{number}"))
        index.put_skill(f"d{number}", LAMP)
        many = [method(f"lamp_{number}_{each}", "x" * 500) for each in range(4)]
        index.put_skill(f"d{number}", Registration(skill="BigSkill", methods=many))
    answer = index.search("lamp")
    assert len(json.dumps([found.as_json() for found in answer.results])) <= 4096
    assert len(answer.results) + answer.more == 802
    shared = index.search("brightness").results[0]
    assert len(shared.devices) + shared.more_devices == 200
    assert len(index.search("", limit=3).results) == 3
    assert len(index.search("lamp", max_bytes=60_000).results) > len(answer.results)
    index.close()


def test_of_a_word_that_is_everywhere_the_names_come_first():
    index = SkillIndex()
    index.set_device(IndexedDevice("pc", "pc"))
    for number in range(15):
        many = [method(f"do_{number}_{each}", "Something with the robot.") for each in range(100)]
        index.put_skill("pc", Registration(skill=f"Many{number}Skill", methods=many))
    index.put_skill("pc", Registration(skill="RobotSkill", methods=[method("go", "Off it goes.")]))
    answer = index.search("robot")
    assert paths(answer)[0] == "devices.pc.RobotSkill.go"
    assert answer.more > 100
    index.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("setvolume", ["set_volume"]), ("volum", ["set_volume"]), ("Turn-On", ["turn_on"]), ("zzz", [])],
)
def test_the_nearest_names_are_those_that_were_meant(name, expected):
    assert nearest(name, ["set_volume", "turn_on", "pause"]) == expected


def test_the_nearest_of_very_many_names_is_found():
    names = [f"Lamp {number} of the house" for number in range(10_000)]
    assert nearest("reding lmp", [*names, "Reading Lamp"])[0] == "Reading Lamp"


def test_a_suggestion_lists_what_there_is_when_nothing_is_near():
    assert suggestion("zzz", ["b", "a"]) == "there are: a, b"
    assert suggestion("zzz", []) == ""
    assert suggestion("zzz", [f"n{i}" for i in range(9)]).endswith("and 4 more")
