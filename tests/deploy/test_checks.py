"""What the doctor says of a machine that is not the one at hand."""

import asyncio
import json
import re
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from pydantic import TypeAdapter

from contracts.answers.devices import DeviceAnswer, RegistryProblem
from contracts.answers.skills import FailingBody
from contracts.answers.system import ClusterMember
from contracts.devices.registration import Unavailable
from contracts.errors import ConfigError, Forbidden
from deploy.directory import Home
from deploy.doctor.checks import Check, check_cluster, check_devices, check_directory, judge_memory
from deploy.doctor.doctor import _ending, _hub
from deploy.doctor.spoke_checks import check_spoke, read_enrolment
from hub_agent.bus.connection import BusHealth
from hub_server.system.host import Health, LinkUp, PublicHealth
from spoke.membership.joining import join
from spoke.presence.clock import HubClock
from spoke.settings import SpokeSettings
from tests.deploy.strawberry import environment_of, run
from tests.spoke.hub import BUS, StandInHub, serving

T = TypeVar("T")

_MB = 1024**2
_PI_ZERO_2 = 512 * _MB


@pytest.fixture
def hub() -> Iterator[StandInHub]:
    with serving(StandInHub(brokers=["mqtt://127.0.0.1:9"])) as hub:
        yield hub


def _checks(home: Home) -> dict[str, Check]:
    enrolment = read_enrolment(home)
    assert enrolment is not None
    return {each.check: each for each in check_spoke(home, enrolment)}


async def _joined(hub: StandInHub, directory: Path) -> Home:
    settings = SpokeSettings(home=directory, hub_url=hub.url)
    await join(settings, token=hub.invite(), clock=HubClock())
    return Home(directory)


@pytest.mark.parametrize(("ahead_s", "words"), [(3_600, "behind"), (-900, "ahead of")])
def test_a_wrong_clock_is_told_with_its_command(
    hub: StandInHub, tmp_path: Path, ahead_s: float, words: str
) -> None:
    home = asyncio.run(_joined(hub, tmp_path))
    assert _checks(home)["clock"].ok
    hub.clock_ahead_s = ahead_s
    clock = _checks(home)["clock"]
    assert not clock.ok
    told = re.fullmatch(rf"(\d+) s {words} the hub's", clock.detail)
    assert told is not None, clock.detail
    # Whole seconds of two clocks, and what it took to ask.
    assert int(told[1]) == pytest.approx(abs(ahead_s), abs=60)
    assert "timedatectl" in clock.hint


def test_a_broker_that_takes_a_connection_is_said_to_be_reached_and_no_more(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mqtt://127.0.0.1:{silent.getsockname()[1]}"
        with serving(StandInHub(brokers=["mqtt://127.0.0.1:9", url])) as hub:
            broker = _checks(asyncio.run(_joined(hub, tmp_path)))["broker"]
    assert (broker.ok, broker.detail) == (True, f"{url} can be reached")


def test_a_token_is_sent_to_no_hub_but_its_own(hub: StandInHub, tmp_path: Path) -> None:
    home = asyncio.run(_joined(hub, tmp_path))
    file = home.spoke / "enrolment.json"
    with serving(StandInHub(brokers=["mqtt://127.0.0.1:9"])) as other:
        file.write_text(file.read_text().replace(hub.url, other.url))
        checks = _checks(home)
        assert not checks["hub"].ok
        assert checks["hub"].hint
        assert BUS not in other.requests
        assert other.seen_tokens == []


def test_a_hub_that_does_not_know_the_token_says_whether_it_is_up() -> None:
    known = PublicHealth(status="ok", broker=LinkUp(connected=True))

    def ask(path: str, kind: type[T] | TypeAdapter[T]) -> T:
        return cast("T", known)

    (check,) = _hub(ask, to_join=False)
    assert check.ok
    assert "valid token" in check.detail
    assert "strawberry tokens add" in check.hint


def test_a_nats_that_is_nearly_full_is_named() -> None:
    broker = BusHealth(connected=True, mqtt="3.1.1", kind="nats", fill={"retained": 0.85, "sessions": 0.79})
    known = Health(
        status="ok",
        version="1",
        instance="a",
        broker=broker,
        home_broker=None,
        home_assistant=None,
        without_values=0,
        model=None,
    )

    def ask(path: str, kind: type[T] | TypeAdapter[T]) -> T:
        if path != "/api/health":
            raise Forbidden("no")
        return cast("T", TypeAdapter(Health).validate_json(known.model_dump_json()))

    found = [check for check in _hub(ask, to_join=False) if not check.ok]
    assert [check.detail for check in found] == ["what NATS stores (retained) is 85 % full"]


def test_missing_replicas_and_nodes_are_named() -> None:
    def told(kind: str, state: str, *, bus: bool) -> list[tuple[bool, str]]:
        made = {"kind": kind, "name": "two", "state": state, "bus": bus, "url": "tls://two", "version": "1"}
        return [(each.ok, each.detail) for each in check_cluster([ClusterMember.model_validate(made)])]

    assert told("replica", "leads", bus=True) == told("node", "serves", bus=True) == []
    assert told("replica", "gone", bus=False) == [(True, "two does not run")]
    assert told("replica", "serves", bus=False) == [(False, "two is not connected to the broker")]
    assert told("node", "gone", bus=False) == [(False, "tls://two cannot be reached")]
    assert told("node", "serves", bus=False) == [(False, "two has not caught up with the others")]


def test_what_ends_within_a_month_is_named() -> None:
    def told(days: float) -> list[str]:
        ends = datetime.now(UTC) + timedelta(days=days)
        return [check.detail for check in _ending("token", "grafana", ends, "tokens add")]

    assert told(12.5) == ["grafana ends in 12 days; 'strawberry tokens add' makes a new one"]
    assert told(31) == []


def test_a_machine_that_has_not_joined_has_no_enrolment(tmp_path: Path) -> None:
    assert read_enrolment(Home(tmp_path)) is None
    (tmp_path / "spoke").mkdir()
    (tmp_path / "spoke" / "enrolment.json").write_text("[]")
    with pytest.raises(ConfigError, match="is damaged"):
        read_enrolment(Home(tmp_path))


def _told(home: Path, *words: str) -> dict[str, dict[str, object]]:
    done = run(environment_of(home), "doctor", "--json", *words)
    return {row["check"]: row for row in json.loads(done.stdout)}


def test_a_machine_that_has_neither_hub_nor_spoke_yet_may_become_either(tmp_path: Path) -> None:
    told = _told(tmp_path)
    assert told["sandbox"]["ok"]
    assert "'strawberry up' fetches it" in str(told["sandbox"]["detail"])
    assert "strawberry-home[sandbox]" in str(told["sandbox"]["detail"])
    assert not told["hub"]["ok"]
    assert "'strawberry up'" in str(told["hub"]["hint"])
    assert "'strawberry spoke join'" in str(told["hub"]["hint"])


def test_a_database_without_the_key_of_its_hub_is_told(tmp_path: Path) -> None:
    for name in ("hub/hub.db", "spoke/enrolment.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    told = _told(tmp_path)["hub key"]
    assert not told["ok"]
    assert "key.pem is missing" in str(told["detail"])
    assert "from a backup" in str(told["hint"])


@pytest.mark.parametrize("table", ["turns", "household", "broker", "home_broker"])
def test_a_table_with_which_nothing_starts_is_told(tmp_path: Path, table: str) -> None:
    (tmp_path / "strawberry.toml").write_text(f"[{table}]\nnobody_knows = 1\n")
    told = _told(tmp_path)["settings"]
    assert not told["ok"]
    assert table in str(told["detail"])


def test_a_hub_without_its_sandbox_is_told_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "key.pem").touch()
    told = _told(tmp_path)
    assert not told["sandbox"]["ok"]
    assert "'strawberry up'" in str(told["sandbox"]["hint"])
    assert "spoke join" not in str(told["hub"]["hint"])
    assert "SOUL.md" not in told


def test_a_broken_file_of_the_owner_is_named_with_its_line(tmp_path: Path) -> None:
    soul = tmp_path / "hub" / "SOUL.md"
    soul.parent.mkdir()
    soul.write_bytes(b"# Me\n\nI am \xff.\n")
    (soul.parent / "MEMORY.md").write_text("# Memory\n")
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "finance.yml").write_text("prompt: You count.\nmodle: big\n")
    told = _told(tmp_path)
    assert (told["SOUL.md"]["ok"], told["SOUL.md"]["detail"]) == (False, f"{soul}:3: is not UTF-8 text")
    assert told["MEMORY.md"]["ok"]
    assert "finance.yml:2: unknown setting 'modle'" in str(told["agent finance"]["detail"])


def test_a_spoke_alone_answers_without_a_sandbox_too_and_no_damaged_one(
    hub: StandInHub, tmp_path: Path
) -> None:
    home = asyncio.run(_joined(hub, tmp_path))
    entry = '[[models]]\nname = "own"\nprovider = "ollama"\nmodel = "qwen3:4b"\n'
    (home.directory / "strawberry.toml").write_text(entry)
    sandbox = _told(home.directory)["sandbox"]
    assert sandbox["ok"]
    assert "skills as tools" in str(sandbox["detail"])
    # What lies where it would be installed cannot be read.
    home.sandbox.touch()
    sandbox = _told(home.directory)["sandbox"]
    assert not sandbox["ok"]
    assert "cannot be read" in str(sandbox["detail"])


def test_a_small_machine_is_enough_for_a_spoke_and_not_for_a_hub() -> None:
    assert judge_memory(_PI_ZERO_2, 300 * _MB, hub=False).ok
    assert "a spoke needs less" in judge_memory(_PI_ZERO_2, 300 * _MB, hub=True).hint
    full = judge_memory(_PI_ZERO_2, 20 * _MB, hub=False)
    assert not full.ok
    assert full.hint


def test_a_directory_that_others_can_read_or_that_is_full_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert check_directory(tmp_path, room_mb=1).hint == f"chmod 700 {tmp_path}"
    tmp_path.chmod(0o700)
    assert check_directory(tmp_path, room_mb=1).ok
    assert not check_directory(tmp_path, room_mb=10**12).ok
    assert check_directory(tmp_path / "later", room_mb=10**12).ok
    (tmp_path / ".env").touch(0o644)
    assert _told(tmp_path)[".env"]["hint"] == f"chmod 600 {tmp_path / '.env'}"


def test_a_damaged_database_is_told_and_how_to_go_on_without_it(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    database = tmp_path / "hub" / "hub.db"
    with closing(sqlite3.connect(database)) as sound:
        sound.execute("CREATE TABLE devices (id TEXT)")
    assert _told(tmp_path)["database"]["ok"]
    database.write_bytes(b"this is no database" * 1000)
    told = _told(tmp_path)["database"]
    assert not told["ok"]
    assert "not a database" in str(told["detail"])
    assert "move the file away" in str(told["hint"])


def test_a_device_of_which_something_was_refused_is_shown_with_the_newest_reason() -> None:
    def device(name: str, *problems: str, to_review: int = 0, failed: str = "") -> DeviceAnswer:
        refused = [RegistryProblem(at=datetime.now(UTC), message=each) for each in problems]
        why = Unavailable(kind="setup", reason=failed).text
        skills = [FailingBody(device="tv", skill="PumpSkill", reason=why)] if failed else []
        fields: dict[str, Any] = {"name": name, "problems": refused, "to_review": to_review}
        fields["failing"] = skills
        return DeviceAnswer.model_construct(**fields)

    all_, told = check_devices([device("TV", "an old one", "a new one", to_review=3), device("Radio")])
    assert (all_.ok, all_.detail) == (True, "2, 1 with problems, 3 to review")
    assert (told.ok, told.detail) == (False, "TV: a new one")
    _, skill = check_devices([device("TV", failed="pump.py, line 3: OSError: no pump")])
    assert not skill.ok
    assert skill.detail == ("PumpSkill on TV: its set-up failed: pump.py, line 3: OSError: no pump")
    (fine,) = check_devices([device("Radio")])
    assert fine.detail == "1, none with problems"
