"""What was said before, on the command line: listed, shown, and gone on with."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from contracts.answers.record import ConversationTurn
from tests.deploy.strawberry import environment_of, run
from tests.proofs import ProvingHandler, serving

# Five and a half hours ahead of UTC, all year: what was said in the evening there is of the next day here.
ZONE = "TST-5:30"


def _turn(minute: int, question: str, answer: str | None, **more: Any) -> dict[str, Any]:
    at = datetime(2026, 1, 1, 21, minute, tzinfo=UTC)
    given = {"state": "finished", "mode": None, "question": question, "answer": answer, **more}
    return ConversationTurn(turn=f"t{minute}", conversation="c1", at=at, **given).model_dump(mode="json")


EXCHANGES = (
    _turn(0, "Is it dark?", "It is.", mode="online"),
    _turn(1, "Now?", "Dark.", mode="offline", device="pi"),
    _turn(2, "Still?", "It is st"),
    _turn(3, "Hello?", None, problem="no model is configured"),
    _turn(4, "Yes?", "I", state="cancelled"),
)
KNOWN = (
    {"id": "c1", "asked": "Is it dark?", "title": None, "at": "2026-01-01T21:03:00.000Z"},
    {"id": "c0", "asked": "Good morning", "title": None, "at": "2025-12-31T08:00:00.000Z"},
)
SHOWN = """\
2026-01-02 02:30  (online)
> Is it dark?
It is.

2026-01-02 02:31  (offline)
> Now?
Dark.

2026-01-02 02:32  (broken off)
> Still?
It is st

2026-01-02 02:33  (no answer)
> Hello?
no model is configured

2026-01-02 02:34  (stopped)
> Yes?
I
"""


@dataclass
class Hub:
    """A hub that knows what stands above, and says yes to everything.

    Attributes:
        said: Conversation and text of each message.
        deleted: Path of each request to delete.
    """

    url: str = ""
    known: list[dict[str, Any]] = field(default_factory=lambda: list(KNOWN))
    said: list[tuple[str, str]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, Any]:
        where, _, query = path.partition("?limit=")
        limit = int(query or 100)
        match where.removeprefix("/api/conversations"):
            case "/c1/export?format=markdown":
                return 200, "as Markdown"
            case "/c1/export?format=json":
                return 200, {"id": "c1"}
            case "":
                return 200, self.known[:limit]
            case "/c1" | "/c1c1c1":
                return 200, {"id": "c1", "title": None, "exchanges": EXCHANGES[-limit:]}
            case _:
                return 404, {"code": "not_found", "detail": "there is none", "hint": "Look."}


@pytest.fixture
def hub() -> Iterator[Hub]:
    stand_in = Hub()

    class Handler(ProvingHandler, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, answer = stand_in.answer(self.path)
            self.reply(answer, status=status)

        def do_PATCH(self) -> None:
            self.reply({"id": "c1", "title": self.body()["title"]})

        def do_DELETE(self) -> None:
            stand_in.deleted.append(self.path)
            self.reply(b"", status=204)

        def do_POST(self) -> None:
            message = str(self.body()["messages"][-1]["content"])
            stand_in.said.append((str(self.headers["x-strawberry-conversation"]), message))
            final = {"kind": "final", "answer": "Yes.", "mode": "online"}
            chunk = json.dumps({"choices": [], "x_strawberry": final})
            self.reply(f"data: {chunk}\n\ndata: [DONE]\n\n".encode())

    with serving(Handler) as stand_in.url:
        yield stand_in


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return environment_of(tmp_path, STRAWBERRY_TOKEN=ProvingHandler.token(), TZ=ZONE)


def test_the_conversations_are_listed_with_local_times(hub: Hub, environment: dict[str, str]) -> None:
    done = run(environment, "history", "--hub", hub.url)
    assert done.stdout.splitlines() == [
        "WHEN              ASKED         ID",
        "2026-01-02 02:33  Is it dark?   c1",
        "2025-12-31 13:30  Good morning  c0",
    ]
    only = run(environment, "history", "--limit", "1", "--json", "--hub", hub.url)
    assert json.loads(only.stdout) == [KNOWN[0]]
    hub.known.clear()
    assert "'strawberry chat' starts" in run(environment, "history", "--hub", hub.url).stdout


def test_a_conversation_is_shown_with_who_answered(hub: Hub, environment: dict[str, str]) -> None:
    assert run(environment, "history", "c1", "--hub", hub.url).stdout == SHOWN
    last = run(environment, "history", "c1", "--limit", "2", "--json", "--hub", hub.url)
    assert json.loads(last.stdout) == {"id": "c1", "exchanges": list(EXCHANGES[-2:])}
    unknown = run(environment, "history", "c/2", "--hub", hub.url)
    assert (unknown.returncode, unknown.stderr) == (1, "strawberry: there is none\n  Look.\n")
    hub.known = [{**KNOWN[0], "id": "c1c1c1"}, {**KNOWN[1], "id": "c1c1c0"}]
    several = run(environment, "history", "c1c1", "--hub", hub.url).stderr
    assert "c1c1 begins several: c1c1c1, c1c1c0" in several
    hub.known.pop()
    assert run(environment, "history", "c1c1", "--hub", hub.url).stdout == SHOWN


@pytest.mark.parametrize("words", [("--continue",), ("--conversation", "c1")])
def test_a_talk_goes_on_after_what_was_said_last(
    hub: Hub, environment: dict[str, str], words: tuple[str, ...]
) -> None:
    done = run(environment, "chat", *words, "--hub", hub.url, text="And now?\nSure?\n")
    assert done.stdout == "Yes.\nYes.\n"
    reminder = SHOWN.partition("\n\n")[2].partition("\n\n")[2]
    assert done.stderr == f"{reminder}\nContinue with: strawberry chat --conversation c1 --hub {hub.url}\n"
    assert hub.said == [("c1", "And now?"), ("c1", "Sure?")]


def test_a_new_talk_names_itself_at_its_end_so_that_it_can_go_on(
    hub: Hub, environment: dict[str, str]
) -> None:
    done = run(environment, "chat", "--hub", hub.url, text="Hello\n")
    ((conversation, _),) = hub.said
    assert done.stderr == f"Continue with: strawberry chat --conversation {conversation} --hub {hub.url}\n"
    assert run(environment, "chat", "--hub", hub.url, text="").stderr == ""


def test_one_message_goes_on_too_and_shows_nothing_but_its_answer(
    hub: Hub, environment: dict[str, str]
) -> None:
    done = run(environment, "chat", "--continue", "And now?", "--hub", hub.url)
    assert (done.stdout, done.stderr) == ("Yes.\n", "")
    assert hub.said == [("c1", "And now?")]


def test_what_is_not_there_cannot_go_on_and_nothing_is_said(hub: Hub, environment: dict[str, str]) -> None:
    unknown = run(environment, "chat", "--conversation", "c2", "Hello", "--hub", hub.url)
    assert (unknown.returncode, unknown.stderr) == (1, "strawberry: there is none\n  Look.\n")
    hub.known.clear()
    nothing = run(environment, "chat", "--continue", "Hello", "--hub", hub.url)
    assert nothing.returncode == 1
    assert nothing.stderr.startswith("strawberry: there is no conversation to continue\n")
    assert hub.said == []


def test_a_conversation_is_deleted_only_after_a_yes(hub: Hub, environment: dict[str, str]) -> None:
    words = ("history", "--delete", "c1", "--hub", hub.url)
    assert run(environment, *words, text="what?\nn\n").returncode == 1
    nobody = run(environment, *words)
    assert nobody.returncode == 1
    assert (
        "a confirmation is needed, and standard input is no terminal\n"
        "  Nothing was deleted. Add --yes.\n" in nobody.stderr
    )
    assert hub.deleted == []
    asked = run(environment, *words, text="what?\ny\n")
    assert asked.stdout == "The conversation is deleted.\n"
    assert "> Yes?" in asked.stderr
    assert run(environment, *words, "--yes", "--json").stdout == '{"id": "c1", "deleted": true}\n'
    assert hub.deleted == ["/api/conversations/c1"] * 2
    assert "needs the ID" in run(environment, "history", "--delete").stderr


def test_a_conversation_is_renamed(hub: Hub, environment: dict[str, str]) -> None:
    renamed = run(environment, "history", "c1", "--rename", "The dark", "--hub", hub.url)
    assert renamed.stdout == "The conversation is called 'The dark'.\n"
    hub.known[0] = {**KNOWN[0], "title": "The dark"}
    assert "The dark      c1" in run(environment, "history", "--hub", hub.url).stdout


def test_a_conversation_is_exported_to_a_file_for_its_owner_alone(
    hub: Hub, environment: dict[str, str], tmp_path: Path
) -> None:
    file, document = tmp_path / "c1.json", tmp_path / "c1.md"
    assert run(environment, "history", "c1", "--export", str(file), "--hub", hub.url).returncode == 0
    assert run(environment, "history", "c1", "--export", str(document), "--hub", hub.url).returncode == 0
    assert (json.loads(file.read_text()), document.read_text()) == ({"id": "c1"}, '"as Markdown"')
    assert file.stat().st_mode & 0o777 == 0o600
    again = ("history", "c1", "--export", str(file), "--hub", hub.url)
    assert "exists already" in run(environment, *again).stderr
    assert run(environment, *again, "--yes").stdout == f"Written to {file}.\n"
