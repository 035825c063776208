import json
import logging
import secrets
import sys
from pathlib import Path

import pytest

from contracts.tracing.correlation import correlated
from deploy.logs.logs import _PACKAGES, JsonFormatter, RedactingFormatter, redact
from hub_registry.access.codes import new_code
from identity.keys import KeyPair
from identity.tokens import issue, make_claims

JWT = issue(
    KeyPair.generate(),
    make_claims(hub_id="hub-1", subject="pc", kind="device", owner="anna", scopes=["chat"], lifetime_s=60),
)
ENROLMENT = f"{secrets.token_hex(6)}.{secrets.token_urlsafe(24)}"


CODE = new_code()


@pytest.mark.parametrize("secret", [JWT, ENROLMENT, CODE], ids=["token", "enrolment", "code"])
def test_a_secret_is_taken_out_wherever_it_stands(secret: str) -> None:
    for text in (
        f"password={secret}",
        f"Bearer {secret}",
        f"mqtt://pc:{secret}@host",
        f"b'{secret}'",
        f"a\\n{secret}",
    ):
        assert secret not in redact(text)
        assert secret[-19:] not in redact(text)


def test_the_token_in_a_path_is_taken_out_however_it_is_encoded() -> None:
    path = f"GET /ollama/k/{JWT.replace('.', '%2E')}/api/tags HTTP/1.1"
    assert redact(path) == "GET /ollama/k/[secret]/api/tags HTTP/1.1"


def test_arguments_and_tracebacks_are_cleaned_too() -> None:
    try:
        raise ValueError(f"refused {JWT}")
    except ValueError:
        record = logging.getLogger("x").makeRecord(
            "x", logging.DEBUG, "f", 1, "token %s", (ENROLMENT,), sys.exc_info()
        )
    text = RedactingFormatter("%(message)s").format(record)
    assert "Traceback" in text
    assert JWT not in text
    assert ENROLMENT not in text


def test_a_foreign_text_is_cut_and_makes_no_line_of_its_own() -> None:
    forged = "TV\r\n2026-01-01 00:00:00 INFO    deploy: all is well\u001b[2K"
    record = logging.getLogger("x").makeRecord("x", logging.WARNING, "f", 1, "from %s", (forged,), None)
    line = RedactingFormatter("%(message)s").format(record)
    assert line == "from TV\\r\\n2026-01-01 00:00:00 INFO    deploy: all is well\\u001b[2K"
    record.args = ("x" * 100_000,)
    assert len(RedactingFormatter("%(message)s").format(record)) < 5_000


def test_what_is_no_secret_stays() -> None:
    for text in (
        "devices/bedroom_pc/results/main/0192d3a4-0000-7000-8000-000000000000",
        "version 2.0.11, http://127.0.0.1:8321/api/health",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ):
        assert redact(text) == text


def test_a_text_made_to_be_slow_is_redacted_at_once() -> None:
    # With a quadratic pattern, a megabyte of these would take hours.
    for text in (
        "eyJ" * 350_000,
        "eyJaaaaaaaa." * 90_000,
        "a." * 500_000,
        "://a:" * 200_000,
        "/ollama/k/" * 100_000,
    ):
        assert len(redact(text)) <= len(text)


def test_every_package_of_ours_is_logged() -> None:
    root = Path(__file__).parents[2]
    packages = {each.parent.name for each in root.glob("*/__init__.py")} - {
        "tests",
        "benchmarks",
        "contracts",
    }
    assert set(_PACKAGES) == packages


def test_a_line_of_json_has_the_ids_of_its_work_and_no_secret() -> None:
    with correlated(request="r1", turn="t1"), correlated(call="c1"):
        try:
            raise ValueError(f"refused {JWT}")
        except ValueError:
            record = logging.getLogger("x").makeRecord(
                "x", logging.WARNING, "f", 1, "token %s\nof \u001b[2K", (ENROLMENT,), sys.exc_info()
            )
        line = JsonFormatter().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert (read["request"], read["turn"], read["call"], read["level"]) == ("r1", "t1", "c1", "warning")
    assert "ValueError: refused [secret]" in read["exception"]
    assert ENROLMENT not in line
    assert "call" not in json.loads(JsonFormatter().format(record))
