import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.hub_agent.conftest import _unhurried, home, host, thinking

__all__ = ["_unhurried", "home", "host", "thinking"]


class Receiver:
    """Takes what is posted; ``/broken`` refuses it."""

    def __init__(self) -> None:
        self.taken: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        taken = self.taken

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                taken.put((self.path, json.loads(body)))
                self.send_response(500 if "broken" in self.path else 200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://127.0.0.1:{self.server.server_address[1]}"

    def next(self) -> tuple[str, str, str]:
        """Wait for a message; return its path, title and text."""
        path, body = self.taken.get(timeout=60)
        return path.strip("/"), body["title"], body["message"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()
