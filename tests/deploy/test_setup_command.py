import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from agent_core.models.entries import ModelEntry, read_entries, read_keys
from agent_core.setup.writing import unused_name, write_entry, write_key
from contracts.errors import ConfigError, InvalidMessage
from deploy.directory import Home
from tests.deploy.strawberry import environment_of, run
from tests.forkserver import COMMAND
from tests.model_server import Fails, Says, ScriptedModel, calls
from tests.model_server.ollama import FakeModel, FakeOllama

CTRL_C = "\x03"
KEY = "sk-never-to-be-seen-4711"
CALLS = calls("report_number", number=7)
SETTINGS = """\
# Our house.
[household]
language = "de"   # we speak German

# The big one first.
[[models]]
name = "far"
provider = "openai"
model = "old"      # to be replaced one day
api_key_env = "FAR_KEY"

[[models]]
name = "near"
provider = "ollama"
model = "qwen3:4b"
"""


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(lambda _: CALLS, api_key=KEY) as server:
        yield server
        assert server.refused == []


@pytest.fixture
def ollama() -> Iterator[FakeOllama]:
    models = [FakeModel("big:14b", parameters=14), FakeModel("mute", capabilities=("completion",))]
    library = [FakeModel("qwen3:4b")]
    with FakeOllama(
        lambda seen: CALLS if seen.tools else Says(text="ready"), models=models, library=library
    ) as server:
        yield server


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def nothing_shows(key: str, *texts: str) -> None:
    assert all(key not in text for text in texts)


def test_a_model_is_tried_and_written_with_its_key(tmp_path: Path, model: ScriptedModel) -> None:
    words = ["setup", "--provider", "openai", "--model", "m", "--name", "house", "--base-url", model.base_url]
    done = run(environment_of(tmp_path), *words, "--key-env", "HOUSE_KEY", "--key-stdin", text=f"{KEY}\n")
    assert done.returncode == 0, done.stderr
    assert "answers after" in done.stdout
    assert "calls tools" in done.stdout
    assert "strawberry up" in done.stdout
    nothing_shows(KEY, done.stdout, done.stderr, (tmp_path / "strawberry.toml").read_text())
    (entry,) = read_entries(tmp_path)
    assert (entry.name, entry.base_url, entry.api_key_env, entry.tools) == (
        "house",
        model.base_url,
        "HOUSE_KEY",
        "code",
    )
    assert read_keys(tmp_path, {}) == {"HOUSE_KEY": KEY}
    assert mode(tmp_path / ".env") == mode(tmp_path / "strawberry.toml") == 0o600
    assert model.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_spoke_alone_is_told_to_start_itself_and_no_hub(tmp_path: Path, model: ScriptedModel) -> None:
    (tmp_path / "spoke").mkdir()
    (tmp_path / "spoke" / "enrolment.json").write_text("{}")
    words = ["setup", "--provider", "openai", "--model", "m", "--base-url", model.base_url, "--key-env", "K"]
    done = run(environment_of(tmp_path, K=KEY), *words)
    assert "strawberry spoke run" in done.stdout
    assert "strawberry up" not in done.stdout


def test_a_key_of_the_environment_is_taken_and_kept(tmp_path: Path, model: ScriptedModel) -> None:
    words = ["setup", "--provider", "openai", "--model", "m", "--base-url", model.base_url, "--key-env", "K"]
    done = run(environment_of(tmp_path, K=KEY), *words, "--json")
    told = json.loads(done.stdout)
    assert (told["name"], told["tried"]["tools"]) == ("m", "calls")
    assert read_keys(tmp_path, {}) == {"K": KEY}


def test_a_model_that_does_not_answer_is_not_written(tmp_path: Path) -> None:
    with ScriptedModel(lambda _: Fails(status=401, message=f"wrong key {KEY}")) as server:
        words = ["setup", "--provider", "openai", "--model", "m", "--base-url", server.base_url]
        done = run(environment_of(tmp_path, K=KEY), *words, "--key-env", "K", "--debug")
        assert done.returncode == 1
        assert "wrong key ***" in done.stderr
        assert "Nothing was written" in done.stderr
        nothing_shows(KEY, done.stdout, done.stderr)
        assert not (tmp_path / "strawberry.toml").exists()
        assert not (tmp_path / ".env").exists()
        assert run(environment_of(tmp_path, K=KEY), *words, "--no-test").returncode == 0
    assert [entry.name for entry in read_entries(tmp_path)] == ["m"]


def test_a_model_that_writes_its_calls_into_text_is_written_with_a_warning(tmp_path: Path) -> None:
    printed = Says(text='{"name": "report_number", "arguments": {"number": 7}}')
    with ScriptedModel(lambda _: printed) as server:
        words = ["setup", "--provider", "openai", "--model", "m", "--base-url", server.base_url]
        done = run(environment_of(tmp_path), *words)
        assert run(environment_of(tmp_path), *words).returncode == 0, "the same again"
    assert done.returncode == 0
    assert "fails more often" in done.stdout
    assert [entry.name for entry in read_entries(tmp_path)] == ["m"]


def test_a_model_of_ollama_that_cannot_call_tools_is_recognised(tmp_path: Path, ollama: FakeOllama) -> None:
    environment = environment_of(tmp_path, OLLAMA_HOST=ollama.origin)
    done = run(environment, "setup", "--provider", "ollama", "--model", "mute")
    assert done.returncode == 1
    assert "can talk, but not act" in done.stderr
    assert "says 'tools'" in done.stderr
    absent = run(environment, "setup", "--provider", "ollama", "--model", "qwen3:4b")
    assert "strawberry models pull qwen3:4b" in absent.stderr
    assert read_entries(tmp_path) == ()


@pytest.mark.parametrize(("name", "tools"), [("big:14b", "code"), ("qwen3:4b", "native")])
def test_a_small_model_gets_skills_as_tools(
    tmp_path: Path, ollama: FakeOllama, name: str, tools: str
) -> None:
    environment = environment_of(tmp_path, OLLAMA_HOST=ollama.origin)
    assert run(environment, "models", "pull", "qwen3:4b").returncode == 0
    assert run(environment, "setup", "--provider", "ollama", "--model", name).returncode == 0
    (entry,) = read_entries(tmp_path)
    assert (entry.name, entry.tools, entry.base_url) == (name.replace(":", "-"), tools, ollama.origin)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "there is no terminal to answer them"),
        (["--json"], "there is no terminal to answer them"),
        (["--model", "m"], "no --provider given"),
        (["--provider", "openai"], "no --model given"),
        (["--provider", "openai", "--model", "m"], "OPENAI_API_KEY is not set"),
        (["--provider", "google", "--model", "m", "--base-url", "http://h/v1"], "base_url is only for"),
        (["--provider", "ollama", "--model", "m", "--name", "a b"], "name must be at most 64 letters"),
    ],
)
def test_what_is_missing_is_told_with_the_flags(tmp_path: Path, words: list[str], says: str) -> None:
    done = run(environment_of(tmp_path), "setup", *words)
    assert done.returncode == 1
    assert says in done.stderr
    assert "strawberry setup" in done.stderr or "--key-stdin" in done.stderr
    assert not list(tmp_path.iterdir())


class Person:
    """Somebody at a terminal who answers each question when it comes."""

    def __init__(self, environment: dict[str, str], *answers: tuple[str, str]) -> None:
        master, slave = os.openpty()
        words = [*COMMAND, "setup"]
        with subprocess.Popen(
            words, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        ) as asking:
            os.close(slave)
            # A question that never comes ends the command, and with it the reading.
            watchdog = threading.Timer(120, asking.kill)
            watchdog.start()
            self.seen, self._answered = "", 0
            for question, answer in answers:
                self._read(master, until=question)
                if answer == CTRL_C:
                    _interrupt(asking)
                else:
                    os.write(master, answer.encode())
            self._read(master, until=None)
            self.code = asking.wait()
            watchdog.cancel()
        os.close(master)

    def _read(self, master: int, *, until: str | None) -> None:
        while until is None or until not in self.seen[self._answered :]:
            try:
                piece = os.read(master, 4096)
            except OSError:
                piece = b""
            if not piece:
                assert until is None, f"{until!r} did not come: {self.seen}"
                return
            self.seen += piece.decode("utf-8", "replace")
        self._answered = self.seen.index(until, self._answered) + len(until)


def _interrupt(asking: "subprocess.Popen[bytes]") -> None:
    """Press Ctrl-C, and again where nothing happens.

    Python handles a signal between two steps: one that arrives just before it blocks in reading waits there.
    """
    while asking.poll() is None:
        asking.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            asking.wait(timeout=2)


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of the test's own is one of POSIX")
def test_a_person_is_asked_and_the_key_never_shows(tmp_path: Path, model: ScriptedModel) -> None:
    person = Person(
        environment_of(tmp_path),
        ("Provider", "bard\n"),
        ("There is no bard", "openai\n"),
        ("Address", f"{model.base_url}\n"),
        ("Model", "\n"),
        ("Model", "m\n"),
        ("Name, as you call it [m]", "house\n"),
        ("Key, which is not shown", f"{KEY}\n"),
        ("calls tools", ""),
        ("Provider", "\n"),
    )
    assert person.code == 0, person.seen
    nothing_shows(KEY, person.seen)
    assert "strawberry chat" in person.seen
    assert [entry.name for entry in read_entries(tmp_path)] == ["house"]
    assert read_keys(tmp_path, {}) == {"HOUSE_API_KEY": KEY}


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of the test's own is one of POSIX")
def test_a_person_chooses_among_ollamas_models_and_gets_another(tmp_path: Path, ollama: FakeOllama) -> None:
    person = Person(
        environment_of(tmp_path, OLLAMA_HOST="127.0.0.1:9"),
        ("Provider", "ollama\n"),
        ("Address of Ollama [http://127.0.0.1:9]", "\n"),
        ("no Ollama answers", ""),
        ("Provider", "ollama\n"),
        ("Address", f"{ollama.origin}\n"),
        ("mute:latest  (cannot call tools)", ""),
        ("library [big:14b]", "mute\n"),
        ("Name", "\n"),
        ("Write it all the same? [y/N]", "\n"),
        ("Provider", "ollama\n"),
        ("Address", f"{ollama.origin}\n"),
        ("library", "qwen3:4b\n"),
        ("Get it now?", "y\n"),
        ("Name", "\n"),
        ("calls tools", ""),
        ("Provider", "\x04"),
    )
    assert person.code == 0, person.seen
    (entry,) = read_entries(tmp_path)
    assert (entry.model, entry.tools, entry.base_url) == ("qwen3:4b", "native", ollama.origin)


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of the test's own is one of POSIX")
@pytest.mark.parametrize("question", ["Provider", "library"])
def test_ctrl_c_ends_it_at_any_question(tmp_path: Path, ollama: FakeOllama, question: str) -> None:
    before = [] if question == "Provider" else [("Provider", "ollama\n"), ("Address", "\n")]
    person = Person(environment_of(tmp_path, OLLAMA_HOST=ollama.origin), *before, (question, CTRL_C))
    assert person.code == 130
    assert "Traceback" not in person.seen
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of the test's own is one of POSIX")
def test_who_answers_nothing_changes_nothing(tmp_path: Path) -> None:
    person = Person(environment_of(tmp_path), ("Provider", "\n"))
    assert person.code == 0
    assert "Nothing was added" in person.seen
    assert not list(tmp_path.iterdir())


def test_what_stands_in_the_settings_stays(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (tmp_path / "strawberry.toml").write_text(SETTINGS)
    write_entry(home.directory, ModelEntry(name="third", provider="anthropic", model="m"))
    text = (tmp_path / "strawberry.toml").read_text()
    assert text.startswith(SETTINGS)
    assert [entry.name for entry in read_entries(tmp_path)] == ["far", "near", "third"]


def test_an_entry_of_the_same_name_is_replaced_where_it_stands(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (tmp_path / "strawberry.toml").write_text(SETTINGS)
    write_entry(home.directory, ModelEntry(name="far", provider="anthropic", model="new"))
    far, near = read_entries(tmp_path)
    assert (far.provider, far.model, far.api_key_env, near.name) == ("anthropic", "new", None, "near")
    text = (tmp_path / "strawberry.toml").read_text()
    for comment in ("# Our house.", "# we speak German", "# The big one first."):
        assert comment in text


@pytest.mark.parametrize("before", ["", "models = []\n", "[household]\nlanguage = 'de'\n"])
def test_the_first_entry_may_come_into_any_file(tmp_path: Path, before: str) -> None:
    (tmp_path / "strawberry.toml").write_text(before)
    write_entry(tmp_path, ModelEntry(name="house", provider="ollama", model="m"))
    assert [entry.name for entry in read_entries(tmp_path)] == ["house"]


def test_a_file_that_is_wrong_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "strawberry.toml").write_text("[[models]]\nname =")
    with pytest.raises(ConfigError, match="not TOML"):
        write_entry(tmp_path, ModelEntry(name="house", provider="ollama", model="m"))
    assert (tmp_path / "strawberry.toml").read_text() == "[[models]]\nname ="


@pytest.mark.parametrize("key", [KEY, "with space", "hash # in it", 'quote"d', "=", "'"])
def test_a_key_is_read_as_it_was_written(tmp_path: Path, key: str) -> None:
    (tmp_path / ".env").write_text("# ours\nA=1\nexport B='2'\n")
    write_key(tmp_path, "B", SecretStr(key))
    write_key(tmp_path, "C", SecretStr(key))
    assert read_keys(tmp_path, {}) == {"A": "1", "B": key, "C": key}
    assert (tmp_path / ".env").read_text().startswith("# ours\nA=1\n")
    assert mode(tmp_path / ".env") == 0o600


@pytest.mark.parametrize("key", ["", "two\nlines", "nul\0", "key\u2028B=1", "key\x85"])
def test_what_is_no_key_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidMessage, match="not a key"):
        write_key(tmp_path, "B", SecretStr(key))
    assert not (tmp_path / ".env").exists()


def test_names_are_made_from_the_model_and_never_twice(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert unused_name(home.directory, "library/qwen3:4b") == "qwen3-4b"
    write_entry(home.directory, ModelEntry(name="qwen3-4b", provider="ollama", model="qwen3:4b"))
    assert unused_name(home.directory, "qwen3:4b") == "qwen3-4b-2"
    assert unused_name(home.directory, "::") == "model"
