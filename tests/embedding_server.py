"""A small real embedding behind ``POST /v1/embeddings``: the token vectors that come with ``[hub]``."""

import json
import threading
from contextlib import suppress
from typing import Any, Self

import pytest

from agent_core.search.vectors import token_vectors, vectors_package
from tests.model_server.http import POLL_S, Exchange, LoopbackServer


def skip_without_vectors() -> None:
    if vectors_package() is None:
        pytest.skip("wordllama, which has the token vectors, is not installed: not every machine has a wheel")


class EmbeddingServer:
    """The server; a context manager, ready when entered.

    Attributes:
        texts: All texts that were embedded, in order.
        status: What is answered in place of vectors, where it is not 200.
        may_answer: Answers wait for it.
        size: How many numbers of each vector are given; None for all.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.status = 200
        self.size: int | None = None
        self.closing = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._server = LoopbackServer(self, 0)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL, with ``/v1``."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        skip_without_vectors()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()
        self._server.close_connections()
        self._thread.join()

    def get(self, http: Exchange) -> None:
        """There is nothing to get."""
        http.send_json(404, {})

    def post(self, http: Exchange, raw: bytes) -> None:
        """Answer with the vector of each text."""
        body = json.loads(raw)
        self.may_answer.wait()
        status = self.status if http.path == "/v1/embeddings" else 404
        data: list[dict[str, Any]] = []
        if status == 200:
            self.texts += body["input"]
            # OpenAI does not promise the order.
            vectors = token_vectors().embed(body["input"]).tolist()
            data = [{"index": at, "embedding": each[: self.size]} for at, each in enumerate(vectors)][::-1]
        with suppress(ConnectionError):  # the client did not wait
            http.send_json(status, {"data": data, "model": body["model"]})
