"""The command line itself, before any hub is asked."""

import argparse
import asyncio
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from bus.ports import listen
from contracts.errors import ConfigError
from deploy.cli.client import whole_id
from deploy.cli.commands import COMMANDS, make_parser
from deploy.cli.main import main
from deploy.cli.terminal.asking import typed_unseen
from deploy.logs.terminal import BAD, coloured
from identity.files import only_one
from tests.deploy.strawberry import environment_of, run
from tests.requirements import require

NOBODY = "mqtt://127.0.0.1:9"
"""Where no broker listens; on the usual port one may."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return environment_of(tmp_path / "home")


def test_it_tells_its_version(environment: dict[str, str]) -> None:
    for option in ("--version", "-V"):
        assert run(environment, option).stdout == f"strawberry {version('strawberry-home')}\n"


def test_a_sample_that_is_not_there_is_named_before_anything_starts(environment: dict[str, str]) -> None:
    done = run(environment, "up", "--samples", "lamp,lampe")
    assert done.returncode == 1
    assert "there is no sample 'lampe'" in done.stderr
    assert "calculator, camera" in done.stderr


def test_every_command_explains_itself() -> None:
    parsers = [make_parser()]
    for parser in parsers:
        assert parser.format_help().startswith("usage: strawberry")
        assert "None" not in parser.format_help()
        below = (each.choices for each in parser._actions if isinstance(each, argparse._SubParsersAction))
        parsers += [command for choices in below for command in choices.values()]
    assert len(parsers) > 40


def test_what_goes_for_every_command_may_stand_before_and_behind_it(environment: dict[str, str]) -> None:
    for words in (("--json", "doctor"), ("doctor", "--json")):
        assert run(environment, *words).stdout.startswith('[{"check": "python"')
    assert "Traceback" in run(environment, "--debug", "devices", "list").stderr
    assert "Traceback" not in run(environment, "devices", "list").stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["devces"], "strawberry: unknown command 'devces'; did you mean 'devices'?"),
        (["mcp", "serv"], "strawberry mcp: unknown action 'serv'; did you mean 'serve'?"),
        (["devices", "lst"], "strawberry devices: unknown action 'lst'; did you mean 'list'?"),
        (["chat", "--dev", "pc"], "strawberry chat: unknown option '--dev'; did you mean '--device'?"),
        (
            ["spoke", "join", "--hub", "x"],
            "strawberry spoke join: unknown option '--hub'; did you mean '--hub-key'?",
        ),
        (["chat", "--devce", "pc"], "strawberry chat: unknown option '--devce'; did you mean '--device'?"),
        (
            ["setup", "--provider", "olama"],
            "strawberry setup: unknown --provider 'olama'; did you mean 'ollama'?",
        ),
    ],
)
def test_a_misspelt_command_is_one_line_with_the_nearest_one(
    environment: dict[str, str], words: list[str], said: str
) -> None:
    done = run(environment, *words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{said}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["devices", "add"], "NAME is missing"),
        (["devices", "add", "a", "b"], "unexpected argument 'b'"),
        (["history", "--limit", "many"], "--limit: 'many' is not a whole number above 0"),
        (
            ["--hub", "http://127.0.0.1:9", "chat"],
            "unknown option '--hub'; the options of a command come after it",
        ),
        (["chat", "--token-file", "nowhere"], "cannot read the token file nowhere"),
        (["chat", "--token-file", "-"], "there is no token in standard input"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_where_to_look(
    environment: dict[str, str], words: list[str], said: str
) -> None:
    done = run(environment, *words, text="")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 2, done.stderr


def test_ctrl_d_where_a_password_is_asked_for_ends_a_command_and_no_other_end_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = iter([EOFError(), asyncio.IncompleteReadError(b"", 1)])

    def end(*_: object) -> None:
        raise next(ends)

    monkeypatch.setattr("getpass.getpass", end)
    monkeypatch.setattr("deploy.cli.home.doctor", lambda _: typed_unseen("Key: "))
    assert main(["doctor"]) == 130
    monkeypatch.setattr("deploy.cli.home.doctor", end)
    with pytest.raises(asyncio.IncompleteReadError):
        main(["doctor"])


def test_without_a_command_the_commands_are_shown(environment: dict[str, str]) -> None:
    done = run(environment)
    assert done.returncode == 2
    assert "list, add, change, revoke and remove devices" in done.stderr
    group, asked = run(environment, "devices"), run(environment, "help", "devices")
    assert (group.returncode, asked.returncode, group.stderr) == (2, 0, asked.stdout)
    done = run(environment, "watchers", "add", "door", "--after", "20m")
    assert (done.returncode, "a delay stands before" in done.stderr) == (1, True)


def test_the_help_has_each_command_in_one_group() -> None:
    shown = [line.split()[0] for line in make_parser([]).format_help().splitlines() if line.startswith("  ")]
    assert [name for name in COMMANDS if shown.count(name) != 1] == []


def test_bash_completes_commands_and_options(environment: dict[str, str]) -> None:
    require(importlib.util.find_spec("shtab") is not None, "shtab is not installed: make setup")
    script = run(environment, "completion", "bash").stdout
    for words, wanted in ((["tok"], "tokens"), (["tokens", "revoke", "--y"], "--yes")):
        typed = f"COMP_WORDS=(strawberry {' '.join(words)}); COMP_CWORD={len(words)}; _shtab_strawberry"
        shell = ["bash", "-c", f'{script}\n{typed}\necho "${{COMPREPLY[@]}}"']
        assert subprocess.run(shell, capture_output=True, text=True, check=True).stdout.split() == [wanted]


def test_colours_are_for_terminals_whose_person_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    assert coloured("FAIL", BAD, terminal) == "FAIL"
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    for name, value, has in (("TERM", "xterm", True), ("NO_COLOR", "1", False)):
        monkeypatch.setenv(name, value)
        assert ("\x1b" in coloured("FAIL", BAD, terminal)) is has


def test_the_beginning_of_an_id_is_enough_and_several_are_named() -> None:
    known = ["c0ffee01", "c0ffee02", "ab12cd34"]
    assert [whole_id(each, known) for each in ("ab12", "ab", "c0ffee01", "lamp")] == [
        "ab12cd34",
        "ab",
        "c0ffee01",
        "lamp",
    ]
    with pytest.raises(ConfigError, match="c0ffee01, c0ffee02"):
        whole_id("c0ffee", known)


@pytest.mark.parametrize("words", [["chat"], ["exec", "-"], ["devices", "list"]])
def test_a_closed_standard_input_is_an_empty_one(environment: dict[str, str], words: list[str]) -> None:
    done = run(environment, *words, "--hub", "http://127.0.0.1:9", shell='"$@" <&-')
    assert "Traceback" not in done.stderr


def test_a_closed_standard_output_is_no_reason_to_fail(environment: dict[str, str]) -> None:
    done = run(environment, "--version", shell='"$@" >&-')
    assert (done.returncode, done.stderr) == (0, "")


def test_letters_that_the_locale_does_not_know_are_no_error(environment: dict[str, str]) -> None:
    ascii_only = {**environment, "PYTHONIOENCODING": "ascii", "STRAWBERRY_TOKEN": "x"}
    done = run(ascii_only, "devices", "list", "--hub", "Küche")
    assert done.returncode == 1
    assert done.stderr.startswith("strawberry: 'K\\xfcche' is not the address of a hub")
    named = {**ascii_only, "STRAWBERRY_HOME": environment["STRAWBERRY_HOME"] + "ü"}
    assert "\\xfc" in run(named, "doctor").stdout


@pytest.mark.parametrize("url", ["nonsense", "http://", "http://host:port", "mqtt://127.0.0.1:1883"])
def test_an_address_that_is_none_is_told_before_a_token_is_missed(
    environment: dict[str, str], url: str
) -> None:
    done = run(environment, "devices", "list", "--hub", url)
    assert done.returncode == 1
    assert "is not the address of a hub" in done.stderr


@pytest.mark.parametrize("words", [["chat", ""], ["devices", "rename", "pc", " "]])
def test_an_empty_text_is_refused(environment: dict[str, str], words: list[str]) -> None:
    done = run({**environment, "STRAWBERRY_TOKEN": "x"}, *words, "--hub", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "empty" in done.stderr or "needs a name" in done.stderr


def test_a_home_that_cannot_be_made_is_one_line(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run({**environment, "STRAWBERRY_HOME": str(tmp_path / "file" / "home")}, "up", "--no-spoke")
    assert done.returncode == 1
    assert done.stderr.startswith(f"strawberry: {tmp_path / 'file'}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "folder", "what"),
    [
        (["up", "--http-port", "0", "--mqtt-port", "0"], "hub", "a hub"),
        (["hub", "--http-port", "0"], "hub", "a hub"),
        (["broker", "run", "--mqtt-port", "0"], "broker", "a broker"),
    ],
)
def test_one_home_is_for_one_hub_and_one_broker_whatever_their_ports(
    environment: dict[str, str], words: list[str], folder: str, what: str
) -> None:
    home = Path(environment["STRAWBERRY_HOME"])
    with only_one(home / folder, what="a test", hint=""):
        done = run(environment, *words)
    assert done.returncode == 1
    assert f"strawberry: {what} already runs with {home / folder} (process {os.getpid()})" in done.stderr


@pytest.mark.parametrize(
    "words", [["up", "--lan", "--no-spoke"], ["broker", "run", "--lan"], ["hub", "--lan"]]
)
def test_a_busy_port_is_one_line_and_a_hint_also_for_other_machines(
    environment: dict[str, str], words: list[str]
) -> None:
    with listen("127.0.0.1", 0, purpose="a test") as taken:
        port = str(taken.getsockname()[1])
        option = "--mqtt-port" if words[0] == "broker" else "--http-port"
        rest = {"up": ["--mqtt-port", "0", "--mqtts-port", "0"], "hub": ["--broker", NOBODY]}.get(
            words[0], []
        )
        done = run(environment, *words, option, port, "--json", *rest)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["state"] == "failed"
    assert told["error"] in done.stderr
    assert told["hint"] in done.stderr
    assert f"strawberry: cannot listen for {'MQTT' if words[0] == 'broker' else 'HTTP'}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["broker", "provision", "mqtt://anna:secret@127.0.0.1"], "must not contain a login"),
        (["broker", "provision", "nonsense"], "is not the address of a broker"),
        (["broker", "provision", "mqtt://127.0.0.1:9", "--ca", "nowhere.pem"], "cannot read the certificate"),
        (["broker", "provision", "mqtt://127.0.0.1:9"], "no password was given"),
        (["broker", "provision", "mqtt://nas.local:1883"], "on another machine and without TLS"),
        (["broker", "check", NOBODY], "no broker of Strawberry runs"),
        (["certs", "--name", "no name"], "is not the name of a machine"),
        (["hub", "--broker", "http://127.0.0.1", "--http-port", "0"], "is not the address of a broker"),
        (["up", "--broker", "mosquito"], "'mosquito' is not a broker"),
        (["spoke", "join", "nonsense"], "is not the address of a hub"),
        (["spoke", "join", "http://hub..local"], "is not the address of a hub"),
        (["spoke", "run"], "has not joined a hub yet"),
        (["devices", "approve", "ABCD-EFGH"], "no hub is running"),
        (["purge", "--yes"], "no hub is running"),
    ],
)
def test_a_mistake_is_one_line_and_a_hint(environment: dict[str, str], words: list[str], said: str) -> None:
    done = run(environment, *words)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 2, done.stderr


def test_the_owners_token_is_not_sent_to_whoever_has_the_port_of_a_hub_that_was_killed(
    environment: dict[str, str],
) -> None:
    directory = Path(environment["STRAWBERRY_HOME"]) / "hub"
    directory.mkdir(parents=True)
    (directory / "cli.token").write_text("hush")
    with listen("127.0.0.1", 0, purpose="a test") as somebody:
        url = f"http://127.0.0.1:{somebody.getsockname()[1]}"
        (directory / "run.json").write_text(json.dumps({"url": url, "pid": 1}))
        done = run(environment, "devices", "list")
        assert "no hub is running" in done.stderr
        with only_one(directory, what="a hub that only begins", hint=""):
            assert "no hub is running" in run(environment, "devices", "list").stderr
        with pytest.raises(BlockingIOError):
            somebody.accept()


def test_chat_sends_its_request_before_anything_slow_is_imported() -> None:
    look = "import sys, deploy.cli.main, deploy.cli.chat.command; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    slow = {"pydantic", "rich", "prompt_toolkit", "asyncio", "cryptography"}
    assert slow.isdisjoint(loaded.split())


@pytest.mark.parametrize(
    ("module", "code"), [("deploy.cli.commands", -signal.SIGINT), ("deploy.cli.hub.devices", 130)]
)
def test_ctrl_c_while_a_command_is_imported_shows_no_traceback(module: str, code: int) -> None:
    interrupted = f"""
import os, signal, sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupted())
from deploy.cli.main import main
sys.exit(main(["devices", "list"]))
"""
    done = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (code, "")
