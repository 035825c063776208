"""A small real embedding behind ``POST /v1/embeddings``: the token vectors of the package ``wordllama``."""

import importlib.util
import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from tests.model_server.http import POLL_S, Exchange, LoopbackServer


@cache
def token_model() -> tuple[Tokenizer, Any]:
    """Return the tokenizer of ``wordllama`` and its vectors."""
    # Its own loader would fetch the tokenizer from the network.
    spec = importlib.util.find_spec("wordllama")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    (weights,) = load_file(package / "weights" / "l2_supercat_256.safetensors").values()
    tokenizer = Tokenizer.from_file(str(package / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    return tokenizer, weights.astype(np.float32)


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Return the mean of the vectors of each text's tokens."""
    tokenizer, weights = token_model()
    encoded = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [weights[each.ids or [0]].mean(axis=0).tolist() for each in encoded]


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
            data = [
                {"index": at, "embedding": each[: self.size]} for at, each in enumerate(embed(body["input"]))
            ][::-1]
        with suppress(ConnectionError):  # the client did not wait
            http.send_json(status, {"data": data, "model": body["model"]})
