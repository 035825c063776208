"""Whatever a device says on its topics and a program asks, the hub lives, answers and starts again."""

import hashlib
import os
import pickle
import random
import re
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

from contracts import topics
from deploy.cli.client import find_nearest
from deploy.directory import Home
from identity.ids import uuid7
from tests.adversary.device import Credentials, HostileDevice
from tests.adversary.hostile import DECLARATIONS, JSON, NAMES, Document, documents, encode
from tests.adversary.watched import MOST_S, longest, rounds
from tests.e2e.house import PATIENCE_S, House, Spoke
from tests.forkserver import COMMAND, WATCHED
from tests.model_server import Says, ScriptedModel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot end a process in good order"),
]

MESSAGES = int(os.environ.get("STRAWBERRY_FUZZ_MESSAGES", "1000"))
# The gate says the same in every run; a longer run says something new.
_CHANCE = random.SystemRandom().randrange(2**32) if "STRAWBERRY_FUZZ_MESSAGES" in os.environ else 0
SEED = int(os.environ.get("STRAWBERRY_FUZZ_SEED", _CHANCE))

STALLED_S = 1.0
"""How long all its threads may: another one may hold the interpreter's lock, or just be at work."""

EACH = 25
"""Messages after which is looked whether all is well; so many are shown where it is not."""
CHATS = 4
"""Every so many looks, one includes a chat: a person has about one message a second."""
LARGE: Final = 2_000
"""To so many messages there is one more large body to each route."""
FRAMES: Final = ((Opcode.TEXT, b"x"), (Opcode.TEXT, b'{"kind":"chat"}'), (Opcode.PING, b""))
HEAVY: Final = 1_000
"""Methods that a device registers at once."""
OF_EACH = 3
"""Requests to each route, before it is left to chance what is said and asked."""
OF_A_DEVICE = 100
"""Messages of one device before another takes its place: beyond some, its rates are what refuses them."""

_CALL_S: Final = 0.1
"""How long the answer of a hostile device is waited for."""

BELL_SKILL: Final = '''
from spoke import Skill, skill_method


class BellSkill(Skill):
    """A bell."""

    @skill_method(sentences={"en": ["ring the bell"]})
    def ring(self) -> str:
        """Ring the bell."""
        return "It rings."
'''

# -- what is said ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """A message of a device.

    Attributes:
        is_latest: Whether a status is made the latest of its device, so that it is not refused as an old one.
    """

    row: topics.Topic[Any]
    levels: dict[str, str]
    document: Document
    retain: bool
    is_latest: bool


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        who: ``owner``, ``program``, ``device`` or ``nobody``.
    """

    server: Literal["hub", "spoke"]
    method: str
    path: str
    who: str
    body: bytes


ROWS: Final[list[topics.Topic[Any]]] = [row for row in topics.TOPICS if row.sender != "hub"]
# What a device declares is what most can be wrong with.
OFTEN: Final[list[topics.Topic[Any]]] = [*[topics.SKILL] * 5, topics.STATUS, topics.RESULT]
MOSTLY: Final = st.sampled_from([*[True] * 9, False])
_SCHEMAS: Final = {row.template: row.payload.json_schema() for row in ROWS}
DOCUMENTS: Final = {
    template: documents(schema, schema.get("$defs", {})) for template, schema in _SCHEMAS.items()
}
DOCUMENTS[topics.SKILL.template] |= DECLARATIONS
LEVELS: Final[dict[str, SearchStrategy[str]]] = {
    "skill": st.sampled_from(["LampSkill", "BellSkill", "x" * 64, *"ABCDEF"]),
    "call": st.builds(uuid7),
    "instance": st.sampled_from(["main", "main", "other"]),
    "request": st.builds(uuid7) | NAMES,
}


@st.composite
def messages(draw: st.DrawFn) -> Said:
    """A message on one of the topics that a device may publish to."""
    row = draw(st.sampled_from([*ROWS, *OFTEN]))
    levels = {
        name: draw(LEVELS[name] if name in LEVELS and draw(MOSTLY) else NAMES)
        for name in row.names
        if name not in ("device", "principal")
    }
    document = draw(DOCUMENTS[row.template])
    if isinstance(document, dict) and "skill" in document and "skill" in levels and draw(MOSTLY):
        document["skill"] = levels["skill"]
    return Said(row, levels, document, retain=draw(st.booleans()), is_latest=draw(MOSTLY))


@dataclass(frozen=True)
class Route:
    """What a route that changes something takes.

    Attributes:
        query: Values of its parameters, some of them left out.
        body: What is of the form that the hub says it reads; any JSON where it reads none.
        fields: What it may have.
    """

    method: str
    path: str
    query: SearchStrategy[dict[str, Document]]
    body: SearchStrategy[Document]
    fields: list[str]


_HARMFUL: Final = {"POST /api/purge", "PUT /api/system/lan", "PATCH /api/system/household"}
"""What the owner may do to the home, and what then is gone: all of it, or the hub for a restart."""
_RPC: Final = {
    "type": "object",
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "method": {"enum": ["initialize", "ping", "tools/list", "tools/call", "resources/read", "x"]},
        "params": {},
    },
    "required": ["jsonrpc", "method"],
}
"""A request of the Model Context Protocol, whose two routes are no part of the document."""


def routes(document: dict[str, Any]) -> list[Route]:
    """Return every route of an OpenAPI document that changes something."""
    definitions = document["components"]["schemas"]
    found = [
        _route(method.upper(), path, operation, definitions)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method != "get" and f"{method.upper()} {path}" not in _HARMFUL
    ]
    rpc = {"requestBody": {"content": {"application/json": {"schema": _RPC}}}}
    return [*found, _route("POST", "/mcp", rpc, {}), _route("DELETE", "/mcp", {}, {})]


def _route(method: str, path: str, operation: dict[str, Any], definitions: dict[str, Any]) -> Route:
    parameters = {
        each["name"]: documents(each["schema"], definitions)
        for each in operation.get("parameters", ())
        if each["in"] == "query"
    }
    body, schema = JSON, {}
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        body = documents(schema, definitions)
        schema = definitions.get(schema.get("$ref", "").rpartition("/")[2], schema)
    query = st.fixed_dictionaries({}, optional=parameters)
    return Route(method, path, query, body, [*schema.get("properties", ())])


@st.composite
def requests(draw: st.DrawFn, of_hub: list[Route]) -> Asked:
    """A request to one of the routes; a spoke has some of them, too."""
    of_spoke = [route for route in of_hub if re.search("/(chat|turns|conversations)", route.path)]
    server: Literal["hub", "spoke"] = draw(st.sampled_from(["hub"] * 3 + ["spoke"] * bool(of_spoke)))
    route = draw(st.sampled_from(of_hub if server == "hub" else of_spoke))
    path = re.sub("{.*?}", lambda _: quote(draw(NAMES), safe="") or "x", route.path)
    if query := draw(route.query):
        # A client sends no longer address.
        path += f"?{urlencode({name: encode(value) for name, value in query.items()})}"[:60_000]
    document = draw(route.body)
    if path == "/api/exec" and isinstance(document, dict):
        # Each conversation has a process of its own, whose start takes a second.
        document.pop("conversation", None)
    whos = [*["owner"] * 4, "program", "program", "device", "nobody"]
    who = draw(st.sampled_from(whos if server == "hub" else ["owner"]))
    return Asked(server, route.method, path, who, encode(document))


@st.composite
def large_requests(draw: st.DrawFn, route: Route) -> Asked:
    """A request with a body of up to 1 MB, of the wrong form or just too long."""
    item = draw(st.sampled_from([b"[]", b"{}", b"null", b'"a"', b'{"a":[{},1]}', b'"%b"' % (b"\\" * 500)]))
    # More than any body may have, and what just about passes with a token and without.
    times = min(draw(st.sampled_from([10**6, 10**6, 9_000, 4_000, 150])), 1_000_000 // (len(item) + 1))
    match draw(st.sampled_from(["list", "list", "members", "depth"])):
        case "list":
            large = b"[%b]" % b",".join([item] * times)
        case "members":
            large = b"{%b}" % b",".join(b'"k%d":%b' % (number, item) for number in range(times // 4))
        case _:
            large = b"[" * times + b"]" * times
    document = draw(route.body)
    field = draw(st.sampled_from(route.fields))
    if isinstance(document, dict) and draw(MOSTLY):
        others = encode({name: value for name, value in document.items() if name != field})[:-1]
        large = b'%b%b"%b":%b}' % (others, b"," * (len(others) > 1), field.encode(), large)
    who = draw(st.sampled_from(["owner", "owner", "owner", "device", "nobody"]))
    return Asked("hub", route.method, re.sub("{.*?}", "x", route.path), who, large)


# -- to whom --------------------------------------------------------------------------------------------


@dataclass(repr=False)
class Target:
    """A house with a hub that is watched and a spoke, and the hostile device of the moment."""

    house: House
    spoke: Spoke
    program: str
    device: HostileDevice
    client: httpx.Client
    model: dict[str, str]
    since: float = field(default_factory=time.time)
    sent: list[str] = field(default_factory=list)
    declared: tuple[str, str, dict[str, Any]] = ("", "", {})
    taken: set[bytes] = field(default_factory=set)
    number: int = 0
    answers: Counter[str] = field(default_factory=Counter)

    def take(self, said: Said | Asked) -> None:
        """Send it unless it was sent before, and now and then look whether all is well.

        Raises:
            Enough: When all messages were sent.
        """
        digest = hashlib.sha256(pickle.dumps(said.document if isinstance(said, Said) else said)).digest()
        if digest in self.taken:
            return
        self.taken.add(digest)
        if isinstance(said, Said):
            self._publish(said)
        else:
            self._request(said)
        self.number += 1
        if self.number % EACH == 0:
            self.look()
        if self.number == MESSAGES:
            raise Enough
        if self.number % OF_A_DEVICE == 0 or self.device.is_spent:
            self.device.__exit__()
            self.device = _come(self.house, f"Mad {self.number}")

    def register_much(self) -> None:
        """Register 1,000 methods with 7.9 kB of text each, in as few messages as are allowed and in one."""
        device = self.device
        text = ("It rings the bell. " * 500)[:7_900]
        methods = [
            {"name": f"go{n}", "signature": "go()", "parameters": {}, "doc": text} for n in range(HEAVY)
        ]
        for most in (60, HEAVY):
            for first in range(0, HEAVY, most):
                name = f"Heavy{first}"
                document = {"v": 1, "kind": "skill", "skill": name, "methods": methods[first : first + most]}
                topic = topics.SKILL.build(device=device.id, skill=name)
                payload = device.seal.sign(topic, encode(document))
                device.listed[name] = payload
                device.bus.publish(topic, payload, retain=True)
            device.come_online()
            self.look()
        device.__exit__()
        self.device = _come(self.house, "Mad again")

    def flood(self) -> None:
        """Send frames over WebSockets as fast as they are taken, most of which are no message."""
        url = f"{self.house.url}/api/chat/stream"
        for opcode, data in FRAMES:
            frames = Frame(opcode, data).serialize(mask=True) * (300 * MESSAGES // (len(data) + 6))
            program = {"authorization": f"Bearer {self.program}"}
            for headers in (program, self.device.credentials.headers("GET", url)):
                opened = connect(url.replace("http", "ws", 1), additional_headers=headers)
                # Disconnected while they are sent.
                with opened, suppress(OSError):
                    opened.socket.sendall(frames)
        self.look()
        self.expect("< PING" not in self.house.log("hub"), "frames are logged, each for the time of a line")

    def _publish(self, said: Said) -> None:
        device, document = self.device, said.document
        if said.row is topics.STATUS and isinstance(document, dict):
            if said.is_latest:
                document = device.status_of(document)
            elif isinstance(epoch := document.get("epoch"), int):
                device.epoch = max(device.epoch, min(epoch, 2**53))
        topic = said.row.template.format_map({**said.levels, "device": device.id, "principal": device.id})
        payload = encode(document)
        if (said.row.signed or said.row is topics.CHAT_REQUEST) and payload[:1] == b"{" and len(payload) > 7:
            payload = device.seal.sign(topic, payload)
        self.sent.append(f"{topic} {'retained ' * said.retain}{payload!r}")
        device.bus.publish(topic, payload, retain=said.retain)
        if said.row is topics.RESULT and isinstance(document, dict):
            without = {name: value for name, value in document.items() if name not in ("id", "epoch")}
            device.reply = encode(without) if without else b""
        if said.row is topics.SKILL and topics.SKILL.match(topic) and not device.is_spent:
            device.listed[said.levels["skill"]] = payload
            device.come_online()
            # The one before has been read and indexed by now.
            self._use(*self.declared)
            self.declared = (said.levels["skill"], *_first_method(said.document))

    def _request(self, asked: Asked) -> None:
        url = (
            self.house.url if asked.server == "hub" else find_nearest(Home(self.spoke.home)).url
        ) + asked.path
        response = self._ask(asked.method, url, who=asked.who, content=asked.body)
        self.answers[f"{asked.server} {response.status_code}"] += 1
        self.sent.append(f"{asked.who}: {asked.method} {url} {asked.body!r} -> {response.status_code}")
        self.expect(response.status_code != 500, "an HTTP 500")
        if (asked.method, asked.path) == ("PUT", "/api/models") and response.is_success:
            put_back = self._ask("PUT", url, json={"entries": [self.model]})
            self.expect(put_back.is_success, f"its model cannot be put back: {put_back.text}")

    def _ask(self, method: str, url: str, *, who: str = "owner", **content: Any) -> httpx.Response:
        try:
            return self._send(method, url, who=who, **content)
        except httpx.HTTPError as error:
            self.check_loop()
            self.expect(False, f"{method} {url} failed: {error!r}")
            raise

    def _send(self, method: str, url: str, *, who: str = "owner", **content: Any) -> httpx.Response:
        headers = {"content-type": "application/json"}
        match who:
            case "owner" if not url.startswith(self.house.url):
                headers["authorization"] = (
                    f"Bearer {Home(self.spoke.home).spoke_token_file.read_text().strip()}"
                )
            case "owner":
                headers["authorization"] = f"Bearer {Home(self.house.home).token_file.read_text().strip()}"
            case "program":
                headers["authorization"] = f"Bearer {self.program}"
            case "device":
                headers |= self.device.credentials.headers(method, url)
        return self.client.request(method, url, headers=headers, **content)

    def look(self) -> None:
        """Check that the hub is as it should be for its owner, now that it has taken in what was sent."""
        for name in self.house.processes:
            self.expect(self.house.processes[name].poll() is None, f"{name} has ended")
        call = {"device": self.spoke.id, "skill": "BellSkill", "method": "ring"}
        called = self._ask("POST", f"{self.house.url}/api/skills/call", json=call)
        self.expect(called.json() == {"result": "It rings."}, f"a call of the owner's: {called.text}")
        for path in ("/api/devices", "/api/skills", "/api/skills/search?q=turn+on+the+lamp"):
            answer = self._ask("GET", self.house.url + path)
            self.expect(answer.status_code == 200, f"{path}: {answer.text}")
        if self.number % (EACH * CHATS) == 0:
            for text in ("ring the bell", "turn on the lamp a a a a"):
                answer = self._ask("POST", f"{self.house.url}/api/chat", json={"message": text})
                self.answers[f"chat {answer.status_code}"] += 1
                self.expect(answer.status_code in (200, 429), f"{text!r}: {answer.text}")
        self.check_loop()
        self.sent.clear()

    def _use(self, skill: str, method: str, arguments: dict[str, Any]) -> None:
        """Call and describe what the device has declared; it answers with what it said last as a result."""
        call = {"device": self.device.id, "skill": skill, "method": method, "kwargs": arguments}
        # It need not answer.
        with suppress(httpx.ReadTimeout):
            called = self._send("POST", f"{self.house.url}/api/skills/call", json=call, timeout=_CALL_S)
            self.answers[f"call {called.status_code}"] += 1
            self.expect(called.status_code != 500, f"an HTTP 500: {call}")
        path = quote(f"devices.{self.device.id}.{skill}.{method}", errors="replace")
        described = self._ask("GET", f"{self.house.url}/api/skills/describe?path={path}")
        self.expect(described.status_code != 500, f"an HTTP 500 about {path}")

    def restart(self) -> None:
        """End the hub as a service manager does, and start it with what it has stored."""
        house = self.house
        house.send("hub", signal.SIGTERM)
        self.expect(house.processes["hub"].wait(PATIENCE_S) == 0, "the hub did not end in good order")
        house.program = WATCHED
        house.start_hub()
        house.wait_until_online(self.spoke)

    def check_loop(self) -> None:
        """Check that the hub's loop was never kept from its sockets."""
        found = [
            each
            for name in ("hub", "broker")
            for each in rounds(self.house.home, self.house.processes[name].pid, since=self.since)
        ]
        over = [each for each in found if each.blocked_s > MOST_S or each.process_s > STALLED_S]
        self.expect(not over, f"the loop was blocked for {longest(over)}")
        self.expect("Traceback" not in self.house.log("hub"), "an error that nobody expected")

    def expect(self, is_so: object, otherwise: str) -> None:
        """Check something; where it is not so, report what happened, after what, and how to see it again.

        Raises:
            NotSo: With the report.
        """
        if is_so:
            return
        file = self.house.directory / "said.txt"
        file.write_text("\n".join(self.sent))
        last = "\n".join(line if len(line) < 200 else f"{line[:200]}…" for line in self.sent[-EACH:])
        again = f"STRAWBERRY_FUZZ_SEED={SEED} STRAWBERRY_FUZZ_MESSAGES={MESSAGES}"
        log = self.house.log("hub")
        raise NotSo(f"{otherwise}\n{again} does it again; all of it is in {file}\n{last}\n{log[-3000:]}")


def _argument(schema: Document) -> Any:
    match schema:
        case {"type": "integer" | "number"}:
            return 7
    # What some patterns take ages for.
    return f"{'a' * 29}!"


def _first_method(registration: Document) -> tuple[str, dict[str, Any]]:
    """Return the name of the first method, and arguments for the first of its parameters."""
    match registration:
        case {"methods": [{"name": str(name), "parameters": {"properties": dict(known)}}, *_]}:
            return name, {each: _argument(schema) for each, schema in known.items()}
        case {"methods": [{"name": str(name)}, *_]}:
            return name, {}
    return "", {}


class Enough(BaseException):
    """All messages were sent. No Exception, as `NotSo`."""


class NotSo(BaseException):
    """A check that failed. No Exception: Hypothesis would send the same again, to a hub that has failed."""


def _come(house: House, name: str) -> HostileDevice:
    # Approved, it gets further into the hub.
    return HostileDevice(Credentials.enrol(house, name, trusted=True)).__enter__()


@pytest.fixture
def target(tmp_path: Path, sandbox_files: Path) -> Iterator[Target]:
    """A home with everything in it."""
    with ExitStack() as stack:
        model = stack.enter_context(ScriptedModel(lambda _: Says(text="It is done.")))
        house = stack.enter_context(House(tmp_path / "house", sandbox=sandbox_files))
        house.use_model(model.base_url)
        house.program = WATCHED
        house.start_broker()
        house.start_hub()
        house.program = COMMAND
        spoke = house.add_spoke("Bedroom PC", {"bell.py": BELL_SKILL})
        made = house.ask("/api/tokens", {"name": "a program", "scopes": ["chat", "call"]})
        device = _come(house, "Mad Pi")
        client = stack.enter_context(httpx.Client(timeout=PATIENCE_S))
        entry = {"name": "house", "provider": "openai", "model": "scripted", "base_url": model.base_url}
        found = Target(house, spoke, made["token"], device, client, entry)
        stack.callback(lambda: found.device.__exit__())
        yield found


def test_whatever_is_said_the_hub_lives_is_never_busy_for_long_and_starts_again(target: Target) -> None:
    taken = routes(target.house.ask("/api/openapi.json"))
    everything = settings(
        # Hypothesis likes to repeat itself; what was sent before is not counted.
        max_examples=10 * MESSAGES,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def say(what: SearchStrategy[Said | Asked], times: settings, *, about: str = "") -> None:
        @seed(f"{SEED} {about}")
        @times
        @given(what)
        def say_it(said: Said | Asked) -> None:
            try:
                target.take(said)
            except Exception:
                target.expect(False, traceback.format_exc())

        say_it()

    try:
        target.register_much()
        with suppress(Enough):
            large = settings(everything, max_examples=2 + MESSAGES // LARGE)
            for route in taken:
                about = f"{route.method} {route.path}"
                say(requests([route]), settings(everything, max_examples=OF_EACH), about=about)
                if route.fields:
                    say(large_requests(route), large, about=about)
            say(st.one_of(messages(), messages(), requests(taken)), everything)
        target.flood()
        found = rounds(target.house.home, target.house.processes["hub"].pid, since=target.since)
        sys.stdout.write(f"{target.number} messages; longest round: {longest(found)}\n{target.answers}\n")
        target.restart()
        target.look()
    except NotSo as failure:
        pytest.fail(str(failure))
