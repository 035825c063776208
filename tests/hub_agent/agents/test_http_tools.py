"""HTTP APIs as tools, against a real server on loopback."""

import gzip
import json
import logging
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agent_core.schemas.arguments import check_arguments
from chat.outbound import _tls, is_public
from contracts.errors import CallError
from hub_agent.agents.http_tools import http_method
from hub_agent.agents.profile import HttpTool
from identity.certificates import Authority

SECRET = "k3y/with+odd&letters"


class Api(ThreadingHTTPServer):
    """Echoes each request; some paths answer otherwise."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Api

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        self.server.seen.append(self.path)
        echo = {"method": self.command, "path": self.path, "headers": dict(self.headers), "body": body}
        status, content, headers = 200, json.dumps(echo).encode(), {}
        match self.path.partition("?")[0].split("/")[1]:
            case "elsewhere":
                status, headers = 302, {"location": f"http://localhost:{self.server.server_port}/echo"}
            case "here":
                status, headers = 302, {"location": "/echo"}
            case "round":
                status, headers = 302, {"location": "/round"}
            case "large":
                content = b"x" * 500_000
            case "packed":
                content, headers = gzip.compress(content), {"content-encoding": "gzip"}
            case "broken":
                status, content = 500, b"it broke: " + SECRET.encode()
            case "short":
                headers = {"content-length": "100000"}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "content-length" not in headers:
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def call(
    api: Api, path: str = "/echo", /, *, settings: dict[str, Any] | None = None, **arguments: Any
) -> str:
    given = {"http": "ask", "description": "Asks.", "url": api.url + path, "allow_private": True}
    tool = HttpTool.model_validate({**given, **(settings or {})})
    method = http_method(tool, secret={"KEY": SECRET}.__getitem__)
    return str(await method.function(**check_arguments(method.contract, [], arguments)))


async def test_arguments_go_where_the_profile_says(api: Api) -> None:
    settings = {
        "method": "POST",
        "parameters": {
            "city": {"in": "path"},
            "days": {"in": "query", "type": "integer"},
            "units": {"in": "query", "required": False, "enum": ["metric", "imperial"]},
            "note": {"in": "body"},
        },
        "query": {"app": "home"},
    }
    told = json.loads(
        await call(api, "/v1/{city}/now", settings=settings, city="São/../x?a=1#", days="3", note="hi")
    )
    assert told["method"] == "POST"
    assert told["path"] == "/v1/S%C3%A3o%2F..%2Fx%3Fa%3D1%23/now?days=3&app=home"
    assert json.loads(told["body"]) == {"note": "hi"}
    assert told["headers"]["host"] == f"127.0.0.1:{api.server_port}"
    for wrong in (
        {"city": "x", "days": "many", "note": ""},
        {"city": "..", "days": 1, "note": ""},
        {"days": 1},
    ):
        with pytest.raises(CallError):
            await call(api, "/v1/{city}/now", settings=settings, **wrong)
    with pytest.raises(CallError, match="units"):
        await call(api, "/v1/{city}/now", settings=settings, city="x", days=1, note="", units="feet")


async def test_a_secret_is_sent_and_seen_nowhere(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"headers": {"Authorization": "Bearer ${KEY}"}, "query": {"key": "${KEY}"}}
    with caplog.at_level(logging.DEBUG):
        told = await call(api, settings=settings)
        with pytest.raises(CallError, match="status 500") as failure:
            await call(api, "/broken", settings=settings)
    assert "k3y%2Fwith%2Bodd%26letters" in api.seen[0]
    assert '"authorization": "Bearer ***"' in told
    for text in (told, str(failure.value), failure.value.hint, caplog.text):
        assert "k3y" not in text


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]", "127.1", "0.0.0.0"]
)
async def test_the_home_network_is_refused_unless_the_profile_allows_it(api: Api, host: str) -> None:
    settings = {"url": f"http://{host}:{api.server_port}/echo", "allow_private": False}
    with pytest.raises(CallError, match=r"private network|is not known"):
        await call(api, settings=settings)
    assert api.seen == []


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("10.0.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.251", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("2606:2800:220:1::1", True),
        ("::ffff:192.168.1.1", False),
        ("64:ff9b::c0a8:101", False),
        ("2002:c0a8:101::", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(ip_address(address)) is public


async def test_a_redirect_leads_to_allowed_hosts_only_and_takes_no_secret_along(api: Api) -> None:
    headers = {"headers": {"Authorization": "Bearer ${KEY}"}}
    assert '"authorization"' in await call(api, "/here", settings=headers)
    with pytest.raises(CallError, match="redirects to localhost, which is not allowed"):
        await call(api, "/elsewhere", settings=headers)
    assert api.seen == ["/here", "/echo", "/elsewhere"]
    told = await call(api, "/elsewhere", settings={**headers, "allowed_hosts": ["localhost"]})
    assert "authorization" not in told
    with pytest.raises(CallError, match="not allowed"):
        await call(api, "/here", settings={"method": "POST"})
    with pytest.raises(CallError, match="redirects without end"):
        await call(api, "/round")


async def test_an_answer_is_bounded(api: Api) -> None:
    told = await call(api, "/large", settings={"max_bytes": 1_000})
    assert told == "x" * 1_000 + "\n[The answer is longer and was cut.]"
    with pytest.raises(CallError, match="compressed"):
        await call(api, "/packed")
    with pytest.raises(CallError, match="cannot be asked"):
        await call(api, "/short")
    with pytest.raises(CallError, match="cannot be reached"):
        await call(api, settings={"url": "http://127.0.0.1:1/x"})


async def test_a_host_is_known_by_its_certificate_although_its_address_is_asked(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.load_or_create(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    _tls.cache_clear()
    try:
        for name, fits in (("localhost", True), ("other.example", False)):
            authority.issue([name], [], directory=tmp_path)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
            with Api() as server:
                server.socket = context.wrap_socket(server.socket, server_side=True)
                thread = threading.Thread(target=server.serve_forever, args=(0.02,))
                thread.start()
                settings = {
                    "url": f"https://localhost:{server.server_port}/echo",
                    "headers": {"X-Key": "${KEY}"},
                }
                try:
                    if fits:
                        assert '"x-key": "***"' in await call(api, settings=settings)
                    else:
                        with pytest.raises(CallError, match="certificate that is not trusted"):
                            await call(api, settings=settings)
                        assert server.seen == []
                finally:
                    server.shutdown()
                    thread.join()
    finally:
        _tls.cache_clear()


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "http://[::1"},
        {"url": "http://a.example:99999/"},
        {"url": "ftp://a.example/"},
        {"url": "HTTP://"},
        {"url": "https://user:word@a.example/"},
        {"url": "https://{host}/", "parameters": {"host": {"in": "path"}}},
        {"url": "https://a.example/?key=${KEY}"},
        {"url": "https://a.example/{city}"},
        {"url": "https://a.example/", "parameters": {"city": {"in": "path"}}},
        {"url": "HTTP://a.example/", "headers": {"X-Key": "${KEY}"}},
        {"url": "https://a.example/", "headers": {"Host": "b.example"}},
        {"url": "https://a.example/", "headers": {"X Y": "z"}},
    ],
)
def test_a_tool_that_could_lead_elsewhere_is_no_tool(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HttpTool.model_validate({"http": "ask", "description": "Asks.", **settings})
