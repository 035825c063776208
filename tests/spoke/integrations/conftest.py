"""Integrations, loaded as a spoke loads them, and a web server for them."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent_core.search.catalogue import Target
from agent_core.sentences.index import SentenceCall, SentenceIndex
from agent_core.sentences.responses import response_text
from agent_core.sentences.understanding import Said, Understanding
from agent_core.skills.loading.loader import load_entry
from agent_core.skills.running.runner import SkillRunner
from agent_core.skills.settings import StoredSettings
from agent_core.skills.skill import SkillContext
from contracts.wire import Json
from spoke.integrations import find, skill_of
from tests.spoke.samples.conftest import RecordingSink


class Integration:
    """An integration that runs, and what it published."""

    def __init__(self, runner: SkillRunner, sink: RecordingSink) -> None:
        self._runner = runner
        (self.skill,) = runner.skills.values()
        self.sink = sink

    async def call(self, method: str, *, confirmed: bool = False, **arguments: Any) -> Any:
        return await self._runner.run(self.skill.name, method, [], arguments, confirmed=confirmed)

    async def answer(self, text: str, language: str = "en") -> str | None:
        """Return the answer to a sentence without a model; None where it is not understood."""
        declared = SentenceIndex()
        understanding = Understanding(declared)
        methods = self.skill.registration.methods
        targets = [
            Target(f"devices.den.{each.name}", "den", "Den", self.skill.name, each) for each in methods
        ]
        declared.put(targets)
        assert declared.problems == {}
        kind = self.skill.registration.thing
        understanding.intents.put(targets, source="den", kind=kind, names=("den",), places=())
        await understanding.warm(language)
        said = Said(text, language, "den", None, lambda _: True, lambda *_: True, lambda *_: None)
        found = await understanding.meaning(said, is_patient=True)
        if not isinstance(found, SentenceCall):
            return None
        method = found.target.method
        result = await self.call(method.name, **found.arguments)
        return response_text(method, result, found.arguments, language=found.language)


OpenIntegration = Callable[..., AbstractAsyncContextManager[Integration]]


@pytest.fixture
def opened(tmp_path: Path) -> OpenIntegration:
    """Open an integration by its name, with settings."""

    @asynccontextmanager
    async def open_integration(name: str, **settings: Json) -> AsyncIterator[Integration]:
        sink, owner = RecordingSink(), skill_of(name)
        if settings and owner.Settings is not None:
            folder = tmp_path / owner.__name__
            stored = StoredSettings(owner.Settings, folder, skill=owner.__name__, variables={})
            stored.change(settings)
        loaded = load_entry(find(name), make_context=lambda skill: SkillContext(tmp_path / skill, sink))
        assert loaded.problems == []
        async with SkillRunner(loaded.skills) as runner:
            assert runner.problems == []
            yield Integration(runner, sink)

    return open_integration


class Request(NamedTuple):
    """What a server was asked."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answer = tuple[int, str, bytes | str]
"""Status, media type (where a redirect leads), and content."""


class WebServer(ThreadingHTTPServer):
    """Answers what ``answer`` returns for a request, and keeps what it was asked."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.answer: Callable[[Request], Answer] = lambda request: (404, "text/plain", "")
        self.asked: list[Request] = []
        super().__init__((host, 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def serve(self, **pages: Answer) -> None:
        """Serve pages by their paths, of which ``_`` is the root."""
        self.answer = lambda request: pages.get(
            request.path.partition("?")[0].strip("/") or "_", (404, "", "")
        )


class _Handler(BaseHTTPRequestHandler):
    server: WebServer

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        request = Request(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        self.server.asked.append(request)
        status, kind, content = self.server.answer(request)
        content = content.encode() if isinstance(content, str) else content
        self.send_response(status)
        self.send_header("location" if 300 <= status < 400 else "content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_REPORT = do_PROPFIND = do_PUT = do_DELETE = _serve  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
