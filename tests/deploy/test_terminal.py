"""What devices, models and hubs say is shown on a terminal, which obeys none of it."""

import json
import logging
import os
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from deploy.cli.terminal.asking import call_question
from deploy.logs.logs import RedactingFormatter
from deploy.logs.terminal import visible
from tests.forkserver import COMMAND
from tests.proofs import ProvingHandler, serving

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b8m\r\u202eevil"
AT = "2026-11-27T10:00:00Z"
OBEYED = "\x1b\x07\x9b\r\u202e"


@pytest.fixture
def hub() -> Iterator[str]:
    """A hub that says what it can think of, wherever it is asked."""

    class Handler(ProvingHandler, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            device = {"id": "pc", "key": "pc", "name": EVIL, "area": f"{EVIL}\nfake  row"}
            waiting = {"code": EVIL, "name": EVIL, "source": EVIL, "fingerprint": EVIL, "expires_at": AT}
            skill: dict[str, Any] = {
                "path": EVIL,
                "summary": EVIL,
                "devices": [EVIL],
                "unavailable": {EVIL: EVIL},
            }
            skill |= {"signature": EVIL, "flags": [EVIL], "available": False, "more_devices": 0}
            answers: dict[str, tuple[int, Any]] = {
                "/api/devices": (
                    200,
                    [
                        {
                            **device,
                            "floor": None,
                            "state": "offline",
                            "last_seen": AT,
                            "awaited": [],
                            "to_review": 0,
                            "owner": "admin",
                            "shared": False,
                            "problems": [{"message": EVIL, "at": AT}],
                            "skills": [EVIL],
                            "version": EVIL,
                            **{key: [] for key in ["aliases", "scopes", "failing"]},
                            **dict.fromkeys(["confirm", "mode", "load", "memory_mb", "uptime_s", "loads"]),
                            "trusted": False,
                        }
                    ],
                ),
                "/api/devices/join": (200, [waiting]),
                "/api/skills": (200, {"results": [skill], "more": 0, "hint": EVIL, "silent": [EVIL]}),
                "/api/skills/describe": (200, {"path": "x", "text": f"first\n{EVIL}"}),
            }
            item = {"skill": "S", "method": "m", "before": "", "denied": False}
            long = "\n".join([*[EVIL] * 100, "x" * 5_000 + " unlock all doors"])
            answers["/api/devices/review"] = (
                200,
                [
                    {
                        **device,
                        "digest": EVIL,
                        "items": [
                            {**item, "kind": "sentence", "after": f"en: {EVIL}\nfake line"},
                            {**item, "kind": "documentation", "after": long},
                            {**item, "kind": "flags", "before": "confirm", "after": "none"},
                        ],
                    }
                ],
            )
            refused = (403, {"code": "forbidden", "detail": EVIL, "hint": EVIL})
            status, answer = answers.get(self.path.partition("?")[0], refused)
            self.reply(answer, status=status)

    with serving(Handler) as url:
        yield url


def run(hub: str, *words: str) -> str:
    done = subprocess.run(
        [*COMMAND, *words, "--hub", hub],
        env={**os.environ, "STRAWBERRY_TOKEN": ProvingHandler.token(), "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    return done.stdout.decode()


@pytest.mark.parametrize(
    "words",
    [
        ["devices", "list"],
        ["devices", "review"],
        ["skills", "list"],
        ["skills", "describe", "x"],
        ["broker", "logins"],
    ],
)
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_no_answer_of_a_hub_moves_a_cursor(hub: str, words: list[str], flags: list[str]) -> None:
    said = run(hub, *words, *flags)
    assert "evil" in said
    assert set(said).isdisjoint(OBEYED)


def test_a_name_makes_no_row_of_its_own_and_json_stays_the_same(hub: str) -> None:
    assert len(run(hub, "devices", "list").splitlines()) == 3
    assert json.loads(run(hub, "devices", "list", "--json"))[0]["name"] == EVIL


def test_all_that_would_be_approved_is_shown_as_changes(hub: str) -> None:
    lines = run(hub, "devices", "review").splitlines()
    assert not [line for line in lines if line.startswith("fake")]
    assert "  S.m: flags confirm → none" in lines
    assert len([line for line in lines if line.endswith("evil")]) >= 100
    assert [line for line in lines if line.endswith("x unlock all doors")]


def test_a_log_shows_what_it_was_told() -> None:
    record = logging.getLogger("x").makeRecord("x", logging.WARNING, "f", 1, "%s", (EVIL,), None)
    assert set(RedactingFormatter("%(message)s").format(record)).isdisjoint(OBEYED)


def test_what_people_write_stays_as_it_is() -> None:
    for text in ("Küche\n\tLampe", "غرفة", "👩\u200d💻", r"C:\x1b"):
        assert visible(text) == text


def test_a_question_about_a_call_ends_with_device_and_method_whatever_the_arguments() -> None:
    arguments = {"note": "x" * 5_000, "more": "\nLamp: LampSkill.turn_on?"}
    *given, asked = call_question("Front\ndoor: LockSkill.unlock", arguments).split("\n")
    assert asked == "Front\\u000adoor: LockSkill.unlock?"
    assert len(given) == 1
    assert given[0].endswith("xxx … (cut))")
    assert len(given[0]) < 1_200
    assert call_question("Lamp: LampSkill.off", {}) == "Lamp: LampSkill.off()?"
    short = call_question("Lamp: LampSkill.dim", {"level": 5, "why": "a\u202eb\nc"}, cut=True)
    assert short == "Lamp: LampSkill.dim(level=5, why='a\\u202eb\\nc' … (cut))\nLamp: LampSkill.dim?"
