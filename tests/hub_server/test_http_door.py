"""Who is let in over HTTP, and from where."""

import base64
import hashlib
import hmac
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from contracts.errors import PROBLEM_JSON, ProblemDetails
from deploy.home.maintenance import Maintenance
from hub_agent.address import provide_token
from hub_registry.access import bearer
from hub_server import service
from hub_server.http import app
from hub_server.http.app import Services
from identity import tokens
from identity.keys import KeyPair
from tests.hub_agent.home import Home, open_home, says
from tests.hub_agent.skills import LampSkill

PROTECTED: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/v1/chat/completions", says("turn on the lamp")),
    ("GET", "/v1/models", None),
    ("POST", "/api/chat", {"message": "turn on the lamp"}),
    ("POST", "/api/turns/t1/cancel", {}),
    ("POST", "/api/turns/t1/confirmations/q1", {"approve": True}),
    ("GET", "/api/conversations", None),
    ("GET", "/api/conversations/c1", None),
    ("POST", "/api/skills/call", {"device": "bedroom_pc", "skill": "LampSkill", "method": "turn_on"}),
    ("POST", "/api/exec", {"code": "1"}),
    ("GET", "/api/skills", None),
    ("GET", "/api/skills/search?q=lamp", None),
    ("GET", "/api/devices", None),
    ("POST", "/api/devices", {"name": "Evil"}),
    ("POST", "/api/tokens", {"name": "evil", "scopes": ["call"]}),
)


async def test_every_route_is_documented_and_asks_for_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: Maintenance
) -> None:
    document = (Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")
    documented = {
        (method, re.sub("{.*?}", "{}", path)): "open" in scope
        for method, path, scope in re.findall(r"^\| `([A-Z]+) (\S+?)` \| (.*?) \|", document, re.MULTILINE)
    }
    apps: list[Starlette] = []

    def make_app(services: Services) -> Starlette:
        apps.append(app.make_app(services))
        return apps[-1]

    monkeypatch.setattr(service, "make_app", make_app)
    async with (
        open_home(tmp_path / "home", host=host) as home,
        httpx.AsyncClient(timeout=60, base_url=home.hub.url) as client,
    ):
        served = {
            (method, re.sub("{.*?}", "{}", route.path))
            for route in apps[0].routes
            if isinstance(route, Route)
            for method in (route.methods or set()) - {"HEAD"}
        }
        assert served == documented.keys()
        for (method, path), is_open in documented.items():
            answer = await client.request(method, path.replace("{}", "x"))
            assert (answer.status_code != 401) == is_open, (method, path)


def _encoded(data: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()


async def _forged(home: Home, kind: str) -> str:
    """Return a token that the hub issued, wrong in one way: unchanged it is good."""
    registry = home.hub.registry
    claims = registry.authority.check(await home.token())

    def made(key: KeyPair = registry.key, **changes: Any) -> str:
        return tokens.issue(key, claims.model_copy(update=changes))

    assert registry.authority.check(made()) == claims
    header, payload, signature = made().split(".")
    match kind:
        case "expired":
            return made(iat=claims.iat - 700, exp=claims.iat - 100)
        case "revoked":
            await registry.authority.revoke([claims.jti])
            return made()
        case "other audience":
            return made(aud="mqtt")
        case "other hub":
            return made(iss="hub-other")
        case "other key":
            return made(key=KeyPair.generate())
        case "tampered":
            signed = json.loads(base64.urlsafe_b64decode(payload + "=="))
            return f"{header}.{_encoded({**signed, 'exp': signed['exp'] + 1})}.{signature}"
        case "no algorithm":
            return f"{_encoded({'alg': 'none', 'typ': 'JWT'})}.{payload}."
        case "public key as a secret":
            head = f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{payload}"
            mac = hmac.new(registry.key.public.raw, head.encode(), hashlib.sha256).digest()
            return f"{head}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
        case "no token":
            return ""
        case "nonsense":
            return "nonsense"
    raise AssertionError(kind)


NO_GOOD = [
    "expired",
    "revoked",
    "other audience",
    "other hub",
    "other key",
    "tampered",
    "no algorithm",
    "public key as a secret",
    "no token",
    "nonsense",
]


async def test_no_endpoint_takes_a_token_that_is_not_good(home: Home) -> None:
    lamp = LampSkill()
    await home.device("Bedroom PC", lamp)
    for kind in NO_GOOD:
        token = await _forged(home, kind)
        async with httpx.AsyncClient(base_url=home.hub.url, timeout=60, verify=False) as client:
            for method, path, body in PROTECTED:
                answer = await client.request(
                    method, path, json=body, headers={"authorization": f"Bearer {token}".strip()}
                )
                assert answer.status_code == 401, (kind, path, answer.text)
                assert answer.headers["www-authenticate"].startswith("Bearer")
                problem = ProblemDetails.read(answer.json())
                assert problem is not None
                assert problem.code == "unauthorized"
                assert not token or token not in answer.text
        assert lamp.level == 0


async def test_a_token_opens_only_what_its_scopes_say(home: Home) -> None:
    lamp = LampSkill()
    await home.device("Bedroom PC", lamp)
    chats, calls = await home.token(scopes=("chat",)), await home.token(scopes=("call",))
    async with home.client(chats) as client:
        assert (await client.post("/api/chat", json={"message": "turn on the lamp"})).status_code == 200
        for path, body in (
            ("/api/skills/call", {"device": "bedroom_pc", "skill": "LampSkill", "method": "turn_on"}),
            ("/api/exec", {"code": "1"}),
            ("/api/devices", {"name": "Evil"}),
        ):
            answer = await client.post(path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path
    async with home.client(calls) as client:
        for method, path, body in PROTECTED[:7]:
            assert (await client.request(method, path, json=body)).status_code == 403, path


async def test_the_command_line_gets_a_token_with_all_scopes_for_one_of_before(home: Home) -> None:
    before = await home.token(scopes=("register", "chat", "call"))
    (home.directory / "hub" / "cli.token").write_text(before)
    await provide_token(home.directory / "hub", home.hub.registry)
    async with home.client(before) as client:
        assert (await client.get("/api/tokens")).status_code == 401
    async with home.client() as client:
        assert (await client.get("/api/tokens")).status_code == 200


async def test_health_needs_no_token_and_tells_nothing_private(home: Home) -> None:
    async with home.client() as client:
        known = (await client.get("/api/health")).json()
        assert known["broker"] == {"kind": "embedded", "connected": True, "mqtt": "3.1.1"}
        assert known["home_assistant"] is None
        shown = {"status", "version", "instance", "broker", "home_broker", "home_assistant", "model"}
        assert set(known) == shown | {"without_values"}
    async with httpx.AsyncClient(base_url=home.hub.url, timeout=60, verify=False) as client:
        answer = await client.get("/api/health")
        assert answer.json() == {"status": "ok", "broker": {"connected": True}}
        wrong = await client.get("/api/health", headers={"Authorization": "Bearer made.up.token"})
        assert wrong.json() == answer.json()
        assert answer.headers["x-content-type-options"] == "nosniff"
        for path in ("/docs", "/redoc", "/openapi.json", "/nothing"):
            missing = await client.get(path)
            assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
        wrong = await client.delete("/api/health")
        assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
        wrong = await client.put("/api/session")
        assert wrong.headers["allow"] == "DELETE, GET, HEAD, PATCH, POST"
        assert wrong.json()["hint"] == "This address takes DELETE, GET, HEAD, PATCH, POST."


NAMES = [
    ("127.0.0.1:{port}", True),
    ("localhost:{port}", True),
    ("LOCALHOST", True),
    ("[::1]:{port}", True),
    ("192.168.1.5", True),
    ("evil.example", False),
    ("evil.example:{port}", False),
    ("localhost.evil.example", False),
    ("127.0.0.1.evil.example", False),
    ("", False),
]


async def test_only_names_of_this_hub_are_served(home: Home) -> None:
    for host, served in NAMES:
        name = host.format(port=home.hub.http_port)
        async with home.client(host=name) as client:
            for path in ("/api/health", "/api/skills"):
                answer = await client.get(path)
                assert (answer.status_code == 200) is served, (host, answer.text)


@pytest.mark.parametrize(
    ("origin", "served"),
    [
        ("http://127.0.0.1:{port}", True),
        ("http://127.0.0.1:1", False),
        ("https://127.0.0.1:{port}", False),
        ("http://evil.example", False),
        ("null", False),
        ("", False),
        ("nonsense", False),
    ],
)
async def test_only_pages_of_this_hub_may_ask(home: Home, origin: str, served: bool) -> None:
    name = origin.format(port=home.hub.http_port)
    async with home.client(origin=name) as client:
        answer = await client.get("/api/skills")
    assert answer.status_code == (200 if served else 403)


async def test_a_body_that_is_too_large_is_refused_also_when_it_hides_its_size(home: Home) -> None:
    async def pieces() -> Any:
        for _ in range(300):
            yield b"x" * 10_000

    async with home.client() as client:
        for body in (b"x" * 3_000_000, pieces()):
            headers = {"content-type": "application/json"}
            answer = await client.post("/api/chat", content=body, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        # Less where no token is needed.
        for without, code in (({"name": "x" * 17_000}, "too_large"), ({"name": [[]] * 200}, "invalid")):
            answer = await client.post("/api/session", json=without)
            assert answer.json()["code"] == code
        assert (await client.get("/api/health")).status_code == 200


async def test_values_of_a_body_are_counted_before_it_is_parsed_but_not_the_marks_in_texts(
    home: Home,
) -> None:
    many: list[Any] = [[]] * 20_000
    fields = {
        "/api/chat": "history",
        "/v1/chat/completions": "messages",
        "/v1/responses": "input",
        "/ollama/api/chat": "messages",
        "/api/skills/call": "args",
        "/mcp": '\\"',
    }
    async with home.client(**{"content-type": "application/json"}) as client:
        for path, field in fields.items():
            for encoding in ("utf-8", "utf-16"):
                answer = await client.post(path, content=json.dumps({field: many}).encode(encoding))
                assert (answer.status_code, "10,000 values" in answer.text) == (422, True), path
        answer = await client.post("/api/chat", json={"message": '{[,\\",' * 5_000})
        assert answer.json()["code"] == "no_model"


async def test_bodies_without_a_token_are_counted_by_their_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bearer, "_AT_ONCE", 2)
    monkeypatch.setattr(bearer, "_PER_S", 0)
    async with open_home(tmp_path / "home") as home, home.client() as client:
        answers = [await client.post("/api/devices/join/poll", json={}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [422, 422, 429]
        assert (await client.get("/api/session")).status_code == 200


async def test_an_error_has_the_form_of_the_api_that_was_asked(home: Home) -> None:
    async with home.client() as client:
        problem = await client.post("/api/chat", json={"mesage": "hello", "device": 1})
        no_object = await client.post("/api/chat", json=["hello"])
        query = await client.get("/api/skills/describe")
        openai = await client.post("/v1/chat/completions", json={"mesages": []})
        ollama = await client.get("/ollama/nothing")
        elsewhere = await client.get("/api/conversations/v1/nothing")
    assert problem.headers["content-type"] == PROBLEM_JSON
    assert problem.json() == {
        "type": "urn:strawberry:problem:invalid",
        "title": "Invalid",
        "status": 422,
        "detail": "unknown field 'mesage'; did you mean 'message'?",
        "code": "invalid",
        "hint": "The fields are message (required), agent, conversation, turn, device, can_confirm, … "
        "(GET /api/openapi.json lists all).",
        "errors": [
            {"field": "message", "detail": "field 'message' is missing"},
            {"field": "device", "detail": "device must be a string"},
            {"field": "mesage", "detail": "unknown field 'mesage'; did you mean 'message'?"},
        ],
    }
    assert no_object.json()["hint"] == problem.json()["hint"]
    assert query.json()["hint"] == "The parameters are path (required)."
    error = openai.json()["error"]
    assert error["hint"].startswith("The fields are messages (required)")
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid", None)
    assert openai.headers["content-type"] == "application/json"
    # A family reads it, which no address helps.
    assert ollama.json() == {"error": "Not Found"}
    assert elsewhere.json()["code"] == "not_found"
    for answer in (problem, openai):
        read = ProblemDetails.read(answer.json())
        assert read is not None
        assert read.code == "invalid"


async def test_a_page_cannot_send_json_in_disguise(home: Home) -> None:
    """A form of a foreign page can post text without asking first; JSON it cannot."""
    async with home.client() as client:
        answer = await client.post(
            "/api/chat", content=b'{"message": "turn on the lamp"}', headers={"content-type": "text/plain"}
        )
    assert answer.status_code == 422
