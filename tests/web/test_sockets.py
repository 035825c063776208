"""The socket of the pages and the requests around it: who may use it, on which pages, and for how long."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from deploy.directory import Home
from hub_registry.access.bearer import SESSION_COOKIE
from tests.e2e.house import PATIENCE_S, House, wait_for


@pytest.fixture(scope="module")
def owner(house: House) -> str:
    """The owner's token."""
    return Home(house.home).token_file.read_text().strip()


def _token(house: House, name: str, **more: int) -> tuple[str, str]:
    """Make a token like that of a session; return it and its id."""
    token = house.ask("/api/tokens", {"name": name, "scopes": ["chat", "call", "confirm"], **more})["token"]
    jti = next(each["jti"] for each in house.ask("/api/tokens") if each["name"] == name)
    return token, jti


def _page(house: House, token: str) -> str:
    """Open a page without a browser; return its id."""
    answer = httpx.get(f"{house.url}/agents", cookies={SESSION_COOKIE: token}, timeout=PATIENCE_S)
    assert answer.status_code == 200
    found = re.search(r"client_id': '([0-9a-f-]+)'", answer.text)
    assert found is not None
    return found[1]


@contextmanager
def _socket(house: House, token: str, client: str) -> Iterator[ClientConnection]:
    query = {
        "EIO": "4",
        "transport": "websocket",
        "client_id": client,
        "implicit_handshake": "true",
        "tab_id": "tab",
        "document_id": "document",
        "next_message_id": "0",
    }
    headers = {"cookie": f"{SESSION_COOKIE}={token}", "origin": house.url}
    url = f"{house.url.replace('http', 'ws')}/_nicegui_ws/socket.io/?{urlencode(query)}"
    with connect(url, additional_headers=headers, proxy=None, open_timeout=PATIENCE_S) as socket:
        assert str(socket.recv(PATIENCE_S)).startswith("0{")
        socket.send("40")
        yield socket


def _said(socket: ClientConnection, beginning: str) -> Any:
    """Return the JSON of the next message that begins so; the others are passed over."""
    deadline = time.monotonic() + PATIENCE_S
    while not (message := str(socket.recv(max(0, deadline - time.monotonic())))).startswith(beginning):
        if message == "2":
            socket.send("3")
    return json.loads(message[len(beginning) :])


def test_a_socket_acts_on_pages_of_its_own_session_alone(house: House, owner: str) -> None:
    theirs, page = _token(house, "other browser")[0], _page(house, owner)
    with _socket(house, theirs, page) as socket:
        assert _said(socket, "44")["message"] == "Implicit handshake failed"
    with _socket(house, theirs, _page(house, theirs)) as socket:
        assert "sid" in _said(socket, "40")
        body = {"client_id": page, "tab_id": "tab", "document_id": "other"}
        socket.send("420" + json.dumps(["handshake", body]))
        assert _said(socket, "430") == [False]
    # The page is there, for its own session.
    with _socket(house, owner, page) as socket:
        assert "sid" in _said(socket, "40")


def test_a_socket_ends_at_once_with_its_session(house: House) -> None:
    token, jti = _token(house, "browser that logs out")
    owner = {"authorization": f"Bearer {Home(house.home).token_file.read_text().strip()}"}
    with _socket(house, token, _page(house, token)) as socket:
        assert "sid" in _said(socket, "40")
        httpx.delete(f"{house.url}/api/tokens/{jti}", headers=owner, timeout=PATIENCE_S)
        with pytest.raises(ConnectionClosed):
            _said(socket, "nothing more")
    answer = httpx.get(f"{house.url}/chat", cookies={SESSION_COOKIE: token}, timeout=PATIENCE_S)
    assert answer.headers["location"] == "/login?next=/chat"


@pytest.fixture(scope="module", autouse=True)
def expiring(house: House) -> Iterator[tuple[str, Future[Any]]]:
    """A token that expires while the other tests run, and the end of a socket of its session."""
    token, _ = _token(house, "browser of an hour ago", lifetime_s=20)
    listening = ThreadPoolExecutor(1)
    with _socket(house, token, _page(house, token)) as socket:
        assert "sid" in _said(socket, "40")
        yield token, listening.submit(_said, socket, "nothing more")
        listening.shutdown(wait=False)


def test_one_person_has_a_bounded_number_of_pages(house: House) -> None:
    token, _ = _token(house, "browser with many tabs")
    other, _ = _token(house, "another browser")
    first = _page(house, token)
    for number in range(64):
        # Nor are there more with more sessions.
        page = _page(house, token if number % 2 else other)
    # The oldest page that nobody looks at had to go.
    with _socket(house, token, first) as socket:
        assert _said(socket, "44")["message"] == "Implicit handshake failed"
    with _socket(house, token, page) as socket:
        assert "sid" in _said(socket, "40")


def test_a_socket_ends_when_its_session_expires(house: House, expiring: tuple[str, Future[Any]]) -> None:
    token, end = expiring
    with pytest.raises(ConnectionClosed):
        end.result(PATIENCE_S)

    def is_sent_to_the_login() -> bool:
        # A clock may be some seconds off; until then a further socket ends as soon as it was opened.
        answer = httpx.get(f"{house.url}/chat", cookies={SESSION_COOKIE: token}, timeout=PATIENCE_S)
        return answer.headers.get("location") == "/login?next=/chat"

    wait_for(is_sent_to_the_login, what="the end of the session")


def test_requests_beside_the_socket_are_refused_without_their_session_or_page(
    house: House, owner: str
) -> None:
    cookies, page = {SESSION_COOKIE: owner}, _page(house, owner)
    other, _ = _token(house, "other browser for requests")
    upload = f"/_nicegui/client/{page}/upload/1"
    with httpx.Client(base_url=house.url, timeout=PATIENCE_S) as client:
        poll = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
        assert client.get(poll, headers={"cookie": f"{SESSION_COOKIE}={owner}"}).status_code == 404
        for given, origin, status in (
            (None, house.url, 401),
            (owner, None, 403),
            (owner, "http://evil.example", 403),
            (other, house.url, 404),
        ):
            headers = {} if origin is None else {"origin": origin}
            if given is not None:
                headers["cookie"] = f"{SESSION_COOKIE}={given}"
            assert client.post(upload, headers=headers).status_code == status, (origin, status)
        upgrade = {"connection": "upgrade", "upgrade": "websocket", "host": "evil.example"}
        upgrade |= {"sec-websocket-version": "13", "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}
        assert client.get("/_nicegui_ws/socket.io/", headers=upgrade).status_code == 421
    page_text = httpx.get(f"{house.url}/chat", cookies=cookies, timeout=PATIENCE_S)
    policy = page_text.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert "http" not in policy
