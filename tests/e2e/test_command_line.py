"""The command line as a new user meets it."""

import json
import signal
import socket
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from spoke.landlock import has_landlock
from tests.e2e.house import PATIENCE_S, House, runs, wait_for
from tests.model_server import Fails, Says, ScriptedModel, SeenRequest, calls

pytestmark = pytest.mark.slow

LOCK_SKILL = '''
from pathlib import Path

from spoke import Skill, skill_method


class LockSkill(Skill):
    """The front door."""

    @skill_method(confirm=True)
    def unlock(self, door: str) -> str:
        """Unlock a door."""
        with Path(__file__).with_name("journal.txt").open("a") as file:
            file.write(f"unlocked {door}\\n")
        return f"{door} is open"
'''

PUMP_SKILL = """
from spoke import Skill
class PumpSkill(Skill):
    async def setup(self):
        if not (self.data_dir / "there").exists():
            raise OSError("no such pump")
    def run(self) -> str:
        return "runs"
"""


@pytest.fixture
def up(tmp_path: Path, sandbox_files: Path, model: ScriptedModel) -> House:
    """`strawberry up` on ports of its own; the test enters it."""
    return House(tmp_path / "house", sandbox=sandbox_files)


def _online(house: House) -> dict[str, Any]:
    """Wait for the local spoke, which may come after "Ready", and return its device."""

    def look() -> dict[str, Any] | None:
        found: list[dict[str, Any]] = house.json("devices", "list")
        return next((each for each in found if each["state"] == "online"), None)

    found = wait_for(look, what="the local spoke")
    assert found is not None
    return found


def test_up_says_where_everything_is_and_a_sentence_acts_without_a_model(up: House) -> None:
    with up as house:
        house.start_up()
        said = house.log("up")
        assert house.url in said
        assert f"mqtt://127.0.0.1:{house.mqtt_port}" in said
        assert "LampSkill" in said
        assert "no model" in said.lower()

        answer = house.json("chat", "turn on the lamp")
        assert answer["mode"] == "sentence"
        (device,) = house.json("devices", "list")
        assert (device["trusted"], device["to_review"]) == (True, 0)
        assert house.json("call", device["id"], "LampSkill.status")["is_on"] is True

        house.json("chat", "--continue", "turn on the lamp")
        (known,) = house.json("history")
        kept = house.json("history", known["id"])["exchanges"]
        assert [(each["question"], each["mode"]) for each in kept] == [("turn on the lamp", "sentence")] * 2

        honest = house.cli("chat", "write me a poem")
        assert honest.returncode == 1
        assert "model" in honest.stderr


def test_the_local_spoke_takes_over_no_device_that_was_added_for_another_machine(house: House) -> None:
    name = socket.gethostname()
    added = house.json("devices", "add", name)
    house.kill("hub")
    house.kill("broker")
    house.start_up()
    refusal = f"'strawberry devices remove {name}' lets it join again"
    wait_for(lambda: refusal in house.log("up"), what="the refusal")
    (device,) = house.json("devices", "list")
    assert (device["id"], device["state"], device["trusted"]) == (added["id"], "invited", False)


SPY = '''
from pathlib import Path

from spoke import Skill


class SpySkill(Skill):
    """Looks where it has no business."""

    def read(self, path: str) -> str:
        """Read a file."""
        return Path(path).read_text()
'''


@pytest.mark.skipif(not has_landlock(), reason="this kernel has no Landlock (Linux 5.19)")
def test_a_skill_beside_the_hub_reads_neither_its_key_nor_the_owners_token(up: House) -> None:
    with up as house:
        folder = house.home / "skills"
        folder.mkdir()
        (folder / "spy.py").write_text(SPY)
        house.start_up()
        device = _online(house)["id"]
        assert "class SpySkill" in house.json("call", device, "SpySkill.read", str(folder / "spy.py"))
        for file in ("hub/key.pem", "hub/cli.token", "hub/hub.db", "broker/run.json"):
            assert (house.home / file).exists()
            refused = house.cli("call", device, "SpySkill.read", str(house.home / file))
            assert refused.returncode == 1
            assert "Permission denied" in refused.stderr


RADIO = """
from pydantic import BaseModel, SecretStr

from spoke import Skill


class RadioSkill(Skill):
    class Settings(BaseModel):
        station: str
        key: SecretStr
        pin: SecretStr
        volume: int = 30

    def play(self) -> str:
        return f"{self.settings.station} at {self.settings.volume}"
"""


def test_settings_are_shown_without_secrets_and_secrets_are_never_taken_from_the_command_line(
    up: House,
) -> None:
    with up as house:
        folder = house.home / "skills"
        folder.mkdir()
        (folder / "radio.py").write_text(RADIO)
        (folder / ".env").write_text("RADIO_PIN=p1nn\n")
        house.start_up()
        device = _online(house)["id"]
        wait_for(lambda: _online(house)["failing"], what="the radio to be registered")
        lacking = house.cli("call", device, "RadioSkill.play")
        assert "a setting is missing: station, key" in lacking.stderr
        refused = house.cli("skills", "settings", "RadioSkill", "key=s3cret")
        assert refused.returncode == 1
        assert "key is a secret" in refused.stderr
        called = house.cli("call", device, "RadioSkill.change_settings", "key=s3cret")
        assert (called.returncode, "asked for it: key=" in called.stderr) == (1, True)
        changed = house.cli(
            "skills", "settings", "RadioSkill", "station=one", "key", "--yes", given="s3cret\n"
        )
        assert changed.returncode == 0, changed.stderr
        assert changed.stdout.splitlines() == [
            "station: one",
            "key: **********",
            "pin: **********",
            "volume: 30",
        ]
        assert house.json("skills", "settings", "RadioSkill")["missing"] == []
        assert house.json("call", device, "RadioSkill.play") == "one at 30"

        def look() -> bool:
            return not _online(house)["failing"]

        wait_for(look, what="the radio to be available")
        asked = house.cli("skills", "settings", "RadioSkill", "volume=40", "key", given="other\n")
        assert "key='••••••'" in asked.stderr
        assert not any(secret in asked.stderr + house.log("up") for secret in ("s3cret", "other", "p1nn"))


def test_a_local_spoke_that_cannot_start_is_reported_and_the_rest_is_ready(up: House) -> None:
    with up as house:
        (house.home / "spoke").mkdir()
        (house.home / "spoke" / "enrolment.json").write_text("{")
        house.start_up()
        said = house.log("up")
        assert "spoke    " in said
        assert said.index("enrolment.json is damaged") < said.index("Ready")
        assert "not there yet" not in said
        assert house.json("devices", "list") == []


def test_a_local_spoke_that_was_removed_joins_again_and_a_revoked_one_names_the_command_for_it(
    up: House,
) -> None:
    def device() -> dict[str, Any]:
        found: list[dict[str, Any]] = house.json("devices", "list")
        return found[0] if found else {"state": "removed"}

    with up as house:
        house.start_up()
        house.cli("devices", "remove", _online(house)["id"], "--yes")
        wait_for(lambda: "it joins again" in house.log("up"), what="the spoke to notice")
        _online(house)
        assert house.json("chat", "turn on the lamp")["mode"] == "sentence"

        revoked = house.cli("devices", "revoke", device()["id"], "--yes").stdout
        assert f"'strawberry devices remove {device()['key']}' lets it join again" in revoked
        wait_for(lambda: "is locked out" in house.log("up"), what="the notice")
        house.send("up", signal.SIGINT)
        house.processes["up"].wait(timeout=PATIENCE_S)
        house.start_up()
        wait_for(lambda: house.log("up").count("is locked out") == 2, what="the notice of the next start")
        assert device()["state"] == "revoked"
        assert f"'strawberry devices remove {device()['id']}' lets it join again" in house.log("up")

        house.cli("devices", "remove", device()["id"], "--yes")
        _online(house)


def test_a_local_spoke_joins_again_where_the_hub_has_an_older_database_or_a_new_identity(up: House) -> None:
    def start_again() -> None:
        starts = house.log("up").count("Ready")
        house.start_up()
        wait_for(lambda: house.log("up").count("Ready") > starts, what="the next start")

    def stop() -> None:
        house.send("up", signal.SIGINT)
        house.processes["up"].wait(timeout=PATIENCE_S)

    with up as house:
        house.start_up()
        before = _online(house)
        stop()
        with closing(sqlite3.connect(house.database)) as database, database:
            database.execute("DELETE FROM token WHERE kind = 'device'")
        start_again()
        assert _online(house)["id"] == before["id"]

        stop()
        for file in (house.database, house.home / "hub" / "key.pem"):
            file.unlink()
        start_again()
        _online(house)


def test_up_reports_its_states_as_lines_of_json_and_leaves_nothing_running(up: House) -> None:
    with up as house:
        ports = ("--http-port", str(house.http_port), "--mqtt-port", str(house.mqtt_port))
        house.start("up", "up", "--json", *ports)
        wait_for(lambda: '"ready"' in house.log("up") or house.ended("up"), what="strawberry up")
        children = _children(house.processes["up"].pid)
        assert children
        house.send("up", signal.SIGINT)
        assert house.processes["up"].wait(timeout=PATIENCE_S) == 0
        assert "Traceback" not in house.log("up")
        wait_for(lambda: not any(map(runs, children)), what="the children to end")
        states = [json.loads(line) for line in house.log("up").splitlines() if line.startswith("{")]
    assert [each["state"] for each in states] == [
        *("starting", "broker", "hub", "models", "setup", "spoke", "ready", "stopping")
    ]
    by_name = {each["state"]: each for each in states}
    assert by_name["ready"]["hub"] == by_name["hub"]["url"] == house.url
    assert by_name["ready"]["broker"] == by_name["broker"]["url"]
    assert by_name["spoke"]["presence"] == "online"
    assert "LampSkill" in by_name["spoke"]["skills"]
    assert by_name["setup"]["link"] == f"{house.url}/setup#{by_name['setup']['code']}"


def test_killing_up_leaves_no_orphan(up: House) -> None:
    with up as house:
        house.start_up()
        assert house.json("exec", "1 + 1")["value"] == 2
        children = _children(house.processes["up"].pid)
        house.kill("up")
        assert not any(map(runs, children))


def _children(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def test_a_confirm_method_asks_and_runs_only_after_yes(house: House, model: ScriptedModel) -> None:
    pi = house.add_spoke("Door Pi", {"lock.py": LOCK_SKILL})
    for given, expected in (("n\n", []), ("", []), ("y\n", ["unlocked front"])):
        number = len(model.requests)
        model.script = lambda seen, first=number: (
            calls("python_exec", code="devices.door_pi.LockSkill.unlock('front')")
            if seen.number == first
            else Says(text="Done.")
        )
        done = house.cli("chat", "unlock the front door", given=given)
        assert "Door Pi" in done.stderr
        assert "front" in done.stderr
        assert pi.journal() == expected


@pytest.mark.parametrize("words", [("chat", "do the job"), ("call", "bedroom_pc", "JournalSkill.patiently")])
def test_ctrl_c_stops_the_skill_that_runs(
    house: House, model: ScriptedModel, journal: dict[str, str], words: tuple[str, ...]
) -> None:
    pc = house.add_spoke("Bedroom PC", journal)
    model.script = [calls("python_exec", code="devices.bedroom_pc.JournalSkill.patiently('job', seconds=60)")]
    arguments = () if words[0] == "chat" else ("text=job", "seconds=60")
    process = house.begin(*words, *arguments)
    wait_for(lambda: pc.journal() == ["job begun"], what="the job to begin")

    process.send_signal(signal.SIGINT)

    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert "Traceback" not in err
    wait_for(lambda: len(pc.journal()) == 2, what="the job to end")
    assert pc.journal() == ["job begun", "job stopped"]
    assert house.json("call", pc.id, "JournalSkill.write", "text=after") == "wrote after"


def test_files_are_for_their_owner_only(house: House, journal: dict[str, str]) -> None:
    spoke = house.add_spoke("Bedroom PC", journal)
    for directory in (house.home / "hub", house.home / "broker", spoke.home / "spoke"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700, directory
        for file in directory.rglob("*"):
            # A draft of a file may have been put in place meanwhile.
            with suppress(FileNotFoundError):
                assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


def test_a_program_gets_only_the_scopes_it_was_given(house: House, journal: dict[str, str]) -> None:
    house.add_spoke("Bedroom PC", journal)
    token = house.json("tokens", "add", "node-red", "--scope", "chat")["token"]
    refused = house.cli("call", "Bedroom PC", "JournalSkill.write", "text=x", STRAWBERRY_TOKEN=token)
    assert refused.returncode == 1
    assert "call" in refused.stderr
    assert house.cli("devices", "add", "Another", STRAWBERRY_TOKEN=token).returncode == 1
    assert house.cli("devices", "list", STRAWBERRY_TOKEN=token).returncode == 0

    from_stdin = ("skills", "list", "--token-file", "-")
    assert house.cli(*from_stdin, given=f"{token}\n").returncode == 0
    assert house.json("tokens", "add", "grafana")["token"]
    assert {each["name"] for each in house.json("tokens", "list")} >= {"node-red", "grafana"}
    revoked = house.cli("tokens", "revoke", "node-red", "--yes")
    assert revoked.stdout == "The token node-red is revoked.\n", revoked.stderr
    assert "node-red" not in {each["name"] for each in house.json("tokens", "list")}
    assert house.cli(*from_stdin, given=f"{token}\n").returncode == 1


def test_people_are_added_changed_and_removed(house: House) -> None:
    added = house.json("users", "add", "Ann", "--role", "guest")
    assert added["link"] == f"{house.url}/setup#{added['code']}"
    assert added["code"] not in house.cli("users", "code", "Ann").stdout
    assert house.cli("users", "rename", "Ann", "Ann Lee").stdout == "Ann is now Ann Lee.\n"
    assert house.json("users", "role", "ann", "member")["role"] == "member"
    for words in (("users", "remove", "Bob"), ("audit", "--user", "Bob")):
        assert house.cli(*words).stderr.startswith("strawberry: there is no user 'Bob'"), words
    assert "add_user ann (guest)" in house.cli("audit", "--user", "admin").stdout
    unasked = house.cli("users", "remove", "ann")
    assert (unasked.returncode, "Add --yes." in unasked.stderr) == (1, True)
    assert house.cli("users", "remove", "admin", "--yes").returncode == 1
    assert [user["name"] for user in house.json("users", "list")] == ["Admin", "Ann Lee"]
    assert house.cli("users", "remove", "Ann Lee", "--yes").stdout == "Ann Lee is removed.\n"
    assert [user["name"] for user in house.json("users", "list")] == ["Admin"]


def test_a_device_gets_an_area_and_aliases_and_answers_to_them(house: House, journal: dict[str, str]) -> None:
    house.add_spoke("Bedroom PC", journal)
    given = ("--area", "Bedroom", "--floor", "Upstairs", "--alias", "sleepy", "--alias", "nap")
    changed = house.json("devices", "set", "bedroom_pc", *given)
    assert (changed["area"], changed["floor"], changed["aliases"]) == (
        "Bedroom",
        "Upstairs",
        ["sleepy", "nap"],
    )
    assert house.json("call", "nap", "JournalSkill.write", "text=x") == "wrote x"
    assert "Bedroom, Upstairs" in house.cli("devices", "list").stdout
    assert house.json("devices", "set", "nap", "--area", "")["area"] is None
    assert house.cli("devices", "set", "nap").returncode == 1


def _secrets_of(home: Path) -> set[str]:
    """Every secret that lies in a data directory, whatever it is for."""
    found: set[str] = set()
    for file in home.rglob("*"):
        if file.name == "key.pem":
            # As one line, and line by line, as a log might have it.
            lines = [line for line in file.read_text().splitlines() if "---" not in line]
            found |= {"".join(lines), *lines}
        elif file.name == "cli.token":
            found.add(file.read_text().strip())
        elif file.name == "enrolment.json":
            found.add(json.loads(file.read_text())["token"])
        elif file.name == ".env":
            found |= {line.partition("=")[2] for line in file.read_text().splitlines()}
    return found


def _assert_silent(house: House, secrets: set[str], *said: str) -> None:
    logs = {log.name: log.read_text(errors="replace") for log in house.directory.glob("*.log")}
    for name, text in logs.items():
        assert "DEBUG" in text, f"{name} says nothing at debug level"
    for where, text in [*logs.items(), *(("a command", text) for text in said)]:
        # The last part alone makes a token whole again for who knows the rest.
        for secret in secrets | {each.rpartition(".")[2] for each in secrets}:
            assert len(secret) > 20
            assert secret not in text, where


def test_no_secret_is_in_any_log(house: House, journal: dict[str, str], model: ScriptedModel) -> None:
    model_key = "sk-" + "0123456789abcdef" * 2
    (house.home / ".env").write_text(f"HOUSE_KEY={model_key}\n")
    (house.home / ".env").chmod(0o600)
    with (house.home / "strawberry.toml").open("a") as file:
        file.write('api_key_env = "HOUSE_KEY"\n')
    house.kill("hub")
    house.start_hub()
    pc = house.add_spoke("Bedroom PC", journal)
    program = house.json("tokens", "add", "node-red", "--scope", "chat", "--scope", "call")["token"]
    model.script = lambda seen: Says(text="Hello.") if seen.number == 0 else Fails(message="no such key")
    said = house.cli("chat", "hello", "--debug", STRAWBERRY_TOKEN=program)
    assert said.returncode == 0, said.stderr
    assert model_key in model.requests[0].headers["authorization"]
    failed = house.cli("chat", "hello", "--debug", STRAWBERRY_TOKEN=program)
    assert failed.returncode == 1
    refused = house.cli("devices", "add", "Another", "--debug", STRAWBERRY_TOKEN=program)
    unknown = house.cli("skills", "list", "--debug", STRAWBERRY_TOKEN=program[:-3] + "xyz")
    secrets = {pc.token, program, *_secrets_of(house.home), *_secrets_of(pc.home)}
    assert model_key in secrets
    # A spoke that is shut out says so, and one that joins with a used token too.
    house.json("devices", "revoke", pc.id, "--yes")
    wait_for(lambda: f" refuses {pc.id}: " in house.log(pc.id), what="the spoke to notice")
    house.kill(pc.id)
    (pc.home / "spoke" / "enrolment.json").unlink()
    house.start_spoke(pc)
    house.processes[pc.id].wait(timeout=PATIENCE_S)
    house.kill("broker")
    house.start_broker()
    outputs = [text for done in (said, failed, refused, unknown) for text in (done.stdout, done.stderr)]
    _assert_silent(house, secrets, *outputs)


def test_an_agent_answers_from_its_own_files_as_the_command_line_names_it(
    house: House, model: ScriptedModel
) -> None:
    assert house.cli("agents", "new", "finance").returncode == 0
    data = house.home / "data" / "finance"
    data.mkdir(parents=True, exist_ok=True)
    (data / "transactions.json").write_text('[{"what": "groceries", "amount": 450.23}]')

    def answer(seen: SeenRequest) -> Says:
        if "file_reader" not in seen.tools:
            return Says(text=f"The assistant: {seen.said('user')[-1].splitlines()[-1]}")
        return (
            Says(text="You spent $450.23.")
            if seen.results
            else calls("file_reader", path="transactions.json")
        )

    model.script = answer
    for words in (
        ("finance", "How much did I spend on groceries?"),
        ("--agent", "finance", "How much did I spend on groceries?"),
    ):
        asked = house.cli("chat", *words)
        assert (asked.returncode, asked.stdout) == (0, "You spent $450.23.\n")
        assert "finance.file_reader" in asked.stderr
    assert "450.23" in model.requests[1].results[0]
    # What may be a message is one.
    assert house.cli("chat", "finance").stdout == "The assistant: finance\n"
    assert house.cli("chat", "finance", "groceries").stdout == "The assistant: finance groceries\n"
    unknown = house.cli("chat", "--agent", "cook", "hello")
    assert unknown.returncode == 1
    assert "there is no agent 'cook'\n  The agents are: assistant, strawberry, finance." in unknown.stderr
    (listed,) = house.json("agents", "list")
    assert (listed["name"], listed["problems"]) == ("finance", [])
    assert house.json("agents", "check")[0]["ok"]


def test_skills_that_fail_are_shown_with_the_reason_and_come_back(up: House) -> None:
    with up as house:
        skills = house.home / "skills"
        skills.mkdir(parents=True)
        (skills / "cow.py").write_text("import cowsay\nclass CowSkill: ...\n")
        (skills / "pump.py").write_text(PUMP_SKILL)
        house.start_up("--samples", "none")
        device = _online(house)
        reasons = {each["skill"]: each["reason"] for each in device["failing"]}
        assert reasons == {
            "CowSkill": "a package is missing: cow.py, line 1: ModuleNotFoundError: No module named 'cowsay'",
            "PumpSkill": "its set-up failed: pump.py, line 6: OSError: no such pump",
        }
        listed = house.cli("skills", "list").stdout
        assert all(reason in listed for reason in reasons.values())
        assert "cowsay" in house.cli("skills", "describe", "CowSkill").stdout
        doctor = house.cli("doctor")
        assert doctor.returncode == 1
        assert "PumpSkill" in doctor.stdout
        assert "no such pump" in house.cli("call", device["id"], "PumpSkill.run").stderr
        assert house.log("up").count("pump.py, line 6: OSError") == 1

        (house.home / "spoke" / "data" / "PumpSkill" / "there").touch()
        (skills / "cow.py").write_text("class CowSkill:\n    def moo(self) -> str:\n        return 'moo'\n")
        wait_for(lambda: not _online(house)["failing"], what="both skills")
        assert house.json("call", device["id"], "PumpSkill.run") == "runs"
        assert house.json("call", device["id"], "CowSkill.moo") == "moo"
