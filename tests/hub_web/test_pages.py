"""The pages in a hub of this process: under a base path, behind a proxy, and without NiceGUI."""

import asyncio
import gc
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from agent_core.prompt import Household
from contracts.errors import Conflict
from hub_agent.settings import HttpSettings
from hub_registry.access.bearer import SESSION_COOKIE
from hub_web import open_web
from hub_web.parts.files import in_browser
from hub_web.sockets import VIEW
from tests.hub_agent.home import Home, open_home
from tests.hub_registry.spokes import eventually


@asynccontextmanager
async def _opened(directory: Path, **http: object) -> AsyncIterator[Home]:
    async with open_home(directory, http=HttpSettings.model_validate({"port": 0, **http})) as home:
        home.hub.pages.expect()
        async with open_web(home.hub, household=Household()):
            yield home


@pytest.mark.parametrize("stripped", [False, True], ids=["with its path", "by a proxy that takes it off"])
async def test_pages_work_under_a_base_path_and_behind_a_proxy(tmp_path: Path, stripped: bool) -> None:
    async with _opened(
        tmp_path / "home", base_path="/berry", names=("home.example",), trusted_proxies=("127.0.0.1",)
    ) as home:
        place = home.hub.url.removesuffix("/berry") if stripped else home.hub.url
        proxy = {"host": "home.example", "x-forwarded-proto": "https", "x-forwarded-prefix": "/evil"}
        cookie = f"{SESSION_COOKIE}={await home.token()}"
        async with httpx.AsyncClient(timeout=60, headers=proxy, verify=False) as client:
            login = await client.get(f"{place}/chat?a=b")
            assert login.headers["location"] == "/berry/login?next=/chat%3Fa%3Db"
            # The first request waits until the pages are loaded.
            page = await client.get(f"{place}/chat", headers={"cookie": cookie}, timeout=120)
            assert page.status_code == 200
            assert "/evil" not in page.text
            linked = re.findall(r'(?:src|href)="(/[^"]+)"', page.text)
            assert linked
            for path in linked:
                assert path.startswith("/berry/")
                answer = await client.get(place + path.removeprefix("/berry"), headers={"cookie": cookie})
                assert answer.status_code == 200, path
                assert answer.content
            # NiceGUI puts the base path before its own links in the browser.
            people = await client.get(f"{place}/people", headers={"cookie": cookie})
            drawn = re.findall(r'"tag":"nicegui-link".*?"href":"([^"]+)"', people.text)
            assert drawn == ["/audit"]
        url = f"{place.replace('http', 'ws')}{_socket_of(page.text)}"
        headers = {"cookie": cookie, "origin": "https://home.example", "x-forwarded-proto": "https"}
        port = int(place.split(":")[2].split("/")[0])
        url = url.replace(f"127.0.0.1:{port}", "home.example")
        async with connect(
            url, additional_headers=headers, host="127.0.0.1", port=port, proxy=None
        ) as socket:
            assert str(await socket.recv()).startswith("0{")
            await socket.send("40")
            assert "sid" in str(await socket.recv())


def _client_of(page: str) -> str:
    found = re.search(r"client_id': '([0-9a-f-]+)'", page)
    assert found is not None
    return found[1]


def _socket_of(page: str) -> str:
    more = "implicit_handshake=true&tab_id=t&document_id=d"
    return f"/_nicegui_ws/socket.io/?EIO=4&transport=websocket&client_id={_client_of(page)}&{more}"


async def test_a_page_whose_browser_has_gone_is_deleted_once_when_its_session_ends(tmp_path: Path) -> None:
    async with _opened(tmp_path / "home") as home:
        from nicegui import Client

        token, url = await home.token(), home.hub.url
        headers = {"cookie": f"{SESSION_COOKIE}={token}", "origin": url}
        async with httpx.AsyncClient(timeout=60, headers=headers) as browser:
            page = (await browser.get(f"{url}/people", timeout=120)).text
        client = Client.instances[_client_of(page)]
        socket = f"{url.replace('http', 'ws')}{_socket_of(page)}"
        async with connect(socket, additional_headers=headers, proxy=None) as opened:
            assert str(await opened.recv()).startswith("0{")
            await opened.send("40")
            assert "sid" in str(await opened.recv())
        await eventually(lambda: client._delete_tasks)
        (task,) = client._delete_tasks.values()
        authority = home.hub.registry.authority
        await authority.revoke([authority.check(token).jti])
        assert client.id not in Client.instances
        await asyncio.wait([task])
        assert task.cancelled()


async def test_a_button_runs_once_and_tells_its_error_though_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _opened(tmp_path / "home") as home:
        from nicegui import Client, ui

        headers = {"cookie": f"{SESSION_COOKIE}={await home.token()}"}
        async with httpx.AsyncClient(timeout=60, headers=headers) as browser:
            page = (await browser.get(f"{home.hub.url}/people", timeout=120)).text
        client = Client.instances[_client_of(page)]
        view = client.request.scope[VIEW]
        view.enter()
        go, runs, told = asyncio.Event(), 0, []

        async def run() -> None:
            nonlocal runs
            runs += 1
            await go.wait()
            place.delete()
            gc.collect()
            raise Conflict("it is offline")

        with client.content, ui.element("div") as place, ui.element("div"):
            button = view.button("Run", run)
        (listener,) = button._event_listeners
        monkeypatch.setattr(
            client.outbox, "enqueue_message", lambda kind, data, _: told.append((kind, data.get("message")))
        )
        for _ in range(2):
            client.handle_event({"id": button.id, "listener_id": listener, "args": ["{}"]})
        await eventually(lambda: runs)
        go.set()
        await eventually(lambda: ("notify", "It is offline.") in told)
        assert runs == 1

        # A click on a switch counts also while the one before it is under way.
        go.clear()
        changes: list[bool] = []

        async def change(on: bool) -> None:
            changes.append(on)
            await go.wait()

        with client.content:
            lamp = view.switch("Lamp", False, change)
        lamp.value = True
        await eventually(lambda: changes)
        lamp.value = False
        go.set()
        await eventually(lambda: changes == [True, False])

        # A page may be deleted before it is built.
        client.delete()
        ending = set(view._until_closed)
        view.run(run(), name="late")
        assert view._until_closed == ending
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(in_browser("ask", "DELETE", "/api/sessions", None, "/login"))
        assert asked.cancelled()


async def test_without_the_extra_the_start_page_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == "nicegui"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nicegui", None)
    monkeypatch.delitem(sys.modules, "hub_web.server", raising=False)
    for name in [each for each in sys.modules if each.startswith("hub_web.")]:
        if name != "hub_web.loading":
            monkeypatch.delitem(sys.modules, name)
    async with _opened(tmp_path / "home") as home, home.client() as client:
        answer = await client.get("/")
        assert answer.status_code == 200
        assert "strawberry-home[web]" in answer.text
        assert (await client.get("/api/health")).status_code == 200
        assert (await client.get("/api/nothing")).json()["code"] == "not_found"
