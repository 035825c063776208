import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_core.models.ollama import PullStep
from deploy.cli.setup.models import Progress
from tests.deploy.strawberry import environment_of, run
from tests.forkserver import COMMAND
from tests.model_server import Fails, Hangs, Says, ScriptedModel
from tests.model_server.ollama import FakeModel, FakeOllama

ENTRY = """
[[models]]
name = "{name}"
provider = "{provider}"
model = "{model}"
base_url = "{url}"
"""


@pytest.fixture
def ollama() -> Iterator[FakeOllama]:
    models = [FakeModel("qwen3:4b"), FakeModel("mute", capabilities=("completion",), context_length=2048)]
    library = [FakeModel("llama3.2", layers=(8_000_000, 800))]
    with FakeOllama(lambda _: Says(text="ready"), models=models, library=library) as server:
        yield server


def test_the_list_tells_which_models_answer_and_what_ollama_has(tmp_path: Path, ollama: FakeOllama) -> None:
    with ScriptedModel([Fails(status=401, message="wrong key")] * 2) as far:
        (tmp_path / "strawberry.toml").write_text(
            ENTRY.format(name="far", provider="openai", model="m", url=far.base_url)
            + ENTRY.format(name="near", provider="ollama", model="qwen3:4b", url=ollama.origin)
            + '[[models]]\nname = "keyless"\nprovider = "openai"\nmodel = "m"\napi_key_env = "NO_KEY"\n'
            + f'base_url = "{far.base_url}"\n'
        )
        done = run(environment_of(tmp_path), "models", "list", "--json")
        shown = run(environment_of(tmp_path), "models", "list")
    told = json.loads(done.stdout)
    answers = {model["name"]: (model["answers"], model["detail"]) for model in told["models"]}
    assert answers["near"][0] is True
    assert answers["far"][0] is False
    assert "wrong key" in answers["far"][1]
    assert answers["keyless"] == (
        False,
        f"NO_KEY is not set. Add the line NO_KEY=… to {tmp_path / '.env'}.",
    )
    (found,) = told["ollama"]
    assert found["address"] == ollama.origin
    assert [(model["name"], model["calls_tools"]) for model in found["models"]] == [
        ("mute:latest", False),
        ("qwen3:4b", True),
    ]
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["mute:latest", "2.0", "MB", "4.0B", "Q4_K_M", "2048", "no"] in lines
    assert ["qwen3:4b", "2.0", "MB", "4.0B", "Q4_K_M", "40960", "yes", "context", "8192"] in lines


def test_ctrl_c_ends_the_list_at_once_and_without_a_word(tmp_path: Path) -> None:
    with ScriptedModel([Hangs()]) as far:
        (tmp_path / "strawberry.toml").write_text(
            ENTRY.format(name="far", provider="openai", model="m", url=far.base_url)
        )
        listing = subprocess.Popen(
            [*COMMAND, "models", "list"],
            env=environment_of(tmp_path, OPENAI_API_KEY="k"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        while not far.requests:
            time.sleep(0.05)
        listing.send_signal(signal.SIGINT)
        told, _ = listing.communicate(timeout=60)
    assert (listing.returncode, told) == (130, b"\n")


def test_the_list_need_not_ask(tmp_path: Path, ollama: FakeOllama) -> None:
    (tmp_path / "strawberry.toml").write_text(
        ENTRY.format(name="near", provider="ollama", model="qwen3:4b", url=ollama.origin)
    )
    done = run(environment_of(tmp_path), "models", "list", "--no-ask", "--json")
    assert json.loads(done.stdout)["models"][0]["answers"] is None
    assert ollama.requests == []


def test_without_models_and_without_ollama_the_list_says_what_to_do(tmp_path: Path) -> None:
    done = run(environment_of(tmp_path, OLLAMA_HOST="127.0.0.1:9"), "models", "list")
    assert done.returncode == 0
    assert "No model is configured." in done.stdout
    assert "no Ollama answers at http://127.0.0.1:9" in done.stdout


def test_a_pull_gets_a_model_and_says_how_to_use_it(tmp_path: Path, ollama: FakeOllama) -> None:
    environment = environment_of(tmp_path, OLLAMA_HOST=ollama.origin)
    done = run(environment, "models", "pull", "llama3.2")
    assert (done.returncode, ollama.models[-1].tag) == (0, "llama3.2:latest")
    assert done.stderr.splitlines()[0] == "pulling manifest"
    assert done.stderr.splitlines()[-1] == "success"
    assert "llama3.2 is there (8.0 MB)" in done.stdout
    again = run(environment, "models", "pull", "llama3.2", "--json")
    assert json.loads(again.stdout) == {"model": "llama3.2", "address": ollama.origin, "bytes": 8_000_800}


def test_a_pull_that_cannot_be_is_told(tmp_path: Path, ollama: FakeOllama) -> None:
    absent = run(environment_of(tmp_path), "models", "pull", "absent", "--ollama", ollama.origin)
    assert absent.returncode == 1
    assert "Ollama's library has no model absent" in absent.stderr
    nobody = run(environment_of(tmp_path), "models", "pull", "llama3.2", "--ollama", "http://127.0.0.1:9")
    assert nobody.returncode == 1
    assert "no Ollama answers at http://127.0.0.1:9" in nobody.stderr


def test_ctrl_c_stops_a_pull_and_the_next_one_goes_on(tmp_path: Path, ollama: FakeOllama) -> None:
    environment = environment_of(tmp_path, OLLAMA_HOST=ollama.origin)
    # After its second piece of eight.
    ollama.held_pull = 4
    words = [*COMMAND, "models", "pull", "llama3.2"]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as pulling:
        assert ollama.pull_is_held.wait(60)
        pulling.send_signal(signal.SIGINT)
        _, said = pulling.communicate(timeout=60)
    assert pulling.returncode == 130
    assert "Stopped. The same command continues" in said
    assert "Traceback" not in said
    assert list(ollama.downloaded.values()) == [2_000_000]
    ollama.held_pull = None
    assert run(environment, "models", "pull", "llama3.2").returncode == 0
    assert ollama.models[-1].tag == "llama3.2:latest"


def test_progress_tells_rate_and_time_left() -> None:
    progress = Progress()
    assert progress.text(PullStep("pulling manifest"), 0.0) == "pulling manifest"
    step = PullStep("pulling abc", "sha256:abc", 500_000_000, 2_000_000_000)
    # What was there before makes no rate.
    assert progress.text(step, 10.0) == "pulling abc  25 %, 500 MB of 2.0 GB"
    later = PullStep("pulling abc", "sha256:abc", 520_000_000, 2_000_000_000)
    assert progress.text(later, 12.0) == "pulling abc  26 %, 520 MB of 2.0 GB, 10.0 MB/s, 2 min 28 s left"
    done = PullStep("pulling abc", "sha256:abc", 2_000_000_000, 2_000_000_000)
    assert progress.text(done, 13.0) == "pulling abc 100 %, 2.0 GB of 2.0 GB"
    other = PullStep("pulling def", "sha256:def", 0, 10)
    assert progress.text(other, 14.0) == "pulling def   0 %, 0 B of 10 B"
    assert progress.bytes_total == 2_000_000_010
