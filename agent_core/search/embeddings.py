"""Search by meaning: embeddings of texts, computed in the background.

They are made of the token vectors that come with ``[hub]``, or by a model that the home has.

Nothing waits for them for long: where the model is slow or away, the search goes by words alone.
"""

import asyncio
import importlib.util
import logging
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from agent_core import limits
from agent_core.models.entries import Model
from agent_core.search.vectors import token_vectors, vectors_package
from contracts.errors import ConfigError, GatewayError
from contracts.rates import Backoff

if TYPE_CHECKING:
    import httpx
    import numpy

_log = logging.getLogger(__name__)

Embed = Callable[[Sequence[str]], Awaitable[Any]]
"""Gives a vector for each text; raises ``GatewayError`` where there is none."""

BUDGET_S: Final = 0.3
"""How long a search waits for the vector of its query. A model on this machine takes 10 to 50 ms for it."""


@dataclass(frozen=True)
class Similar:
    """Texts by how near they are to a query in meaning.

    Attributes:
        rows: Some of the nearest, the nearest first.
        scores: Of each row: 1 where the meaning is the same, 0 where it is as far as that of the average row.
    """

    rows: tuple[int, ...]
    scores: Mapping[int, float]

    @property
    def least(self) -> float:
        """Return the sum of both scores that the best match must have."""
        slope, offset, floor = limits.LEAST_SUM
        return max(floor, slope * math.log10(len(self.scores)) + offset)

    def standing_out(self, most: int) -> "Similar":
        """Return this with only those rows that need no word of the query."""
        least = self.least / (1 - limits.WORDS_SHARE)
        return replace(self, rows=tuple(row for row in self.rows[:most] if self.scores[row] >= least))


def fused(ranked: Iterable[tuple[int, float]], similar: Similar | None) -> list[tuple[int, float]]:
    """Add the scores by words and by meaning."""
    by_words = dict(ranked)
    if similar is None:
        return list(by_words.items())
    share = limits.WORDS_SHARE
    return [
        (row, share * by_words.get(row, 0.0) + (1 - share) * similar.scores.get(row, 0.0))
        for row in {**by_words, **dict.fromkeys(similar.rows)}
    ]


class Embeddings:
    """Keeps a vector for each text of an index.

    Args:
        embed: Asks the model.
        budget_s: How long a query may wait for its vector.
    """

    def __init__(self, embed: Embed, *, budget_s: float = BUDGET_S) -> None:
        self._embed = embed
        self._budget_s = budget_s
        self._texts: dict[int, str] = {}
        self._vectors: dict[str, Any] = {}
        self._queries: OrderedDict[str, Any] = OrderedDict()
        self._matrix: tuple[list[int], numpy.ndarray[Any, Any]] | None = None
        self._version = 0
        self._size = 0
        self._wake = asyncio.Event()
        self._is_failing = False
        self._rests_until = 0.0
        self._backoff = Backoff(1.0, 300.0)
        self._keeps_size_until = 0.0
        self._between_sizes = Backoff(60.0, 3600.0)

    @property
    def missing(self) -> list[str]:
        return [text for text in dict.fromkeys(self._texts.values()) if text not in self._vectors]

    def keep(self, texts: Mapping[int, str]) -> None:
        """Set the texts to search, by row; a text that is known is not asked for again."""
        gone = self._texts.keys() - texts.keys()
        self.change({**dict.fromkeys(gone, ""), **texts})

    def change(self, texts: Mapping[int, str]) -> None:
        """Set some of the texts, by row; an empty one removes its row."""
        for row, text in texts.items():
            if text:
                self._texts[row] = text[: limits.MAX_EMBEDDED_TEXT]
            else:
                self._texts.pop(row, None)
        # What is said each day is many rows and one text.
        wanted = set(self._texts.values())
        if len(self._vectors) > 2 * len(wanted):
            self._vectors = {text: vector for text, vector in self._vectors.items() if text in wanted}
        self._forget_matrix()
        self._wake.set()

    def _forget_matrix(self) -> None:
        self._matrix = None
        self._version += 1

    async def run(self) -> None:
        """Compute what is missing until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            missing = self.missing
            while missing:
                batch = missing[: limits.EMBEDDED_AT_ONCE]
                vectors = await self._asked(batch, within_s=limits.EMBEDDING_REQUEST_S)
                if vectors is None:
                    await asyncio.sleep(max(0.0, self._rests_until - _clock()))
                    continue
                self._vectors.update(zip(batch, vectors, strict=True))
                self._forget_matrix()
                del missing[: len(batch)]

    async def similar(self, query: str, *, among: Container[int] | None = None) -> Similar | None:
        """Find the texts nearest to a query; None where that is not known in time.

        Args:
            among: Rows that count; None for all.
        """
        if not self._vectors:
            return None
        query = query[: limits.MAX_EMBEDDED_TEXT]
        vector = self._queries.get(query)
        if vector is None:
            if _clock() < self._rests_until:
                return None
            found = await self._asked([query], within_s=self._budget_s)
            if found is None:
                return None
            (vector,) = found
            self._queries[query] = vector
            if len(self._queries) > limits.MOST_QUERIES_KEPT:
                self._queries.popitem(last=False)
        rows, matrix = self._matrix or await self._stack()
        if not rows or matrix.shape[1] != len(vector):
            return None
        cosines = matrix @ vector
        # Cosines of different models cannot be compared: with some all texts are alike.
        average = min(float(cosines.mean()), 0.99)
        scores = (cosines - average) / (1 - average)
        in_order = (rows[place] for place in (-scores).argsort() if among is None or rows[place] in among)
        nearest = tuple(islice(in_order, limits.MOST_SIMILAR))
        return Similar(nearest, dict(zip(rows, scores.tolist(), strict=True))) if nearest else None

    async def _stack(self) -> "tuple[list[int], numpy.ndarray[Any, Any]]":
        version = self._version
        # Of twenty thousand it takes 20 ms.
        matrix = await asyncio.to_thread(_stacked, dict(self._texts), dict(self._vectors))
        if version == self._version:
            self._matrix = matrix
        return matrix

    async def _asked(self, texts: Sequence[str], *, within_s: float) -> list[Any] | None:
        try:
            async with asyncio.timeout(within_s):
                vectors = await asyncio.to_thread(_unit_vectors, await self._embed(texts), len(texts))
        except Exception as error:  # noqa: BLE001 - a damaged file of vectors must not end the hub
            self._failed(str(error) or f"no answer within {within_s:g} s")
            return None
        size = vectors.shape[1]
        if size != self._size and _clock() < self._keeps_size_until:
            self._failed(f"its vectors have {self._size} numbers, and {size} at other times")
            return None
        if self._is_failing:
            _log.info("the embedding model answers again")
            self._is_failing = False
        self._backoff.reset()
        if size != self._size:
            # Another model answers there now; what the one before gave cannot be compared with it. Where two
            # answer in turns, all texts would be embedded for ever.
            if self._size:
                self._keeps_size_until = _clock() + self._between_sizes.next()
            self._size, self._vectors = size, {}
            self._forget_matrix()
            self._queries.clear()
            self._wake.set()
        return list(vectors)

    def _failed(self, why: str) -> None:
        if not self._is_failing:
            _log.warning("search goes by words alone: the embedding model failed: %s", why)
            self._is_failing = True
        self._rests_until = _clock() + self._backoff.next()


@asynccontextmanager
async def open_embeddings(
    model: Model | None, *, tasks: asyncio.TaskGroup, budget_s: float = BUDGET_S
) -> AsyncIterator[Embeddings | None]:
    """Compute in the background until the block is left; yields None where nothing embeds.

    Args:
        model: What embeds; None for the token vectors, where they are installed.
        tasks: Owns the background task.
        budget_s: How long a query may wait for its vector.

    Raises:
        ConfigError: If a model is set and NumPy is not installed.
    """
    import httpx

    if model is not None and importlib.util.find_spec("numpy") is None:
        raise ConfigError(
            "[embeddings] needs NumPy", hint="Install it: pip install 'strawberry-home[embeddings]'."
        )
    if model is None and vectors_package() is None:
        yield None
        return
    async with AsyncExitStack() as stack:
        embed: Embed = _embed_here
        if model is not None:
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=limits.EMBEDDING_REQUEST_S))
            embed = _OpenAIEmbeddings(client, model)
        embeddings = Embeddings(embed, budget_s=budget_s)
        running = tasks.create_task(embeddings.run(), name="embeddings")
        stack.callback(running.cancel)
        yield embeddings


async def _embed_here(texts: Sequence[str]) -> Any:
    return await asyncio.to_thread(lambda: token_vectors().embed(texts))


def _unit_vectors(found: Any, count: int) -> "numpy.ndarray[Any, Any]":
    import numpy as np

    vectors = np.asarray(found, dtype=np.float32).reshape(count, -1)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def _stacked(texts: dict[int, str], vectors: dict[str, Any]) -> "tuple[list[int], numpy.ndarray[Any, Any]]":
    import numpy as np

    rows = [row for row, text in texts.items() if text in vectors]
    return rows, np.array([vectors[texts[row]] for row in rows])


class _OpenAIEmbeddings:
    """``POST /v1/embeddings``, which OpenAI, Ollama and most other servers have."""

    def __init__(self, client: "httpx.AsyncClient", model: Model) -> None:
        entry = model.entry
        base = f"{entry.address}/v1" if entry.is_native_ollama else entry.address
        self._client = client
        self._url = f"{base}/embeddings"
        self._model = entry.model
        self._headers = {"Authorization": f"Bearer {model.key.get_secret_value()}"} if model.key else {}

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        import httpx

        body = {"model": self._model, "input": list(texts)}
        try:
            response = await self._client.post(self._url, json=body, headers=self._headers)
            response.raise_for_status()
            found = sorted(response.json()["data"], key=lambda each: each["index"])
            return [each["embedding"] for each in found]
        except httpx.HTTPStatusError as error:
            raise GatewayError(
                "{model} answered with status {status}", model=self._model, status=error.response.status_code
            ) from None
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise GatewayError("{model}: {name}", model=self._model, name=type(error).__name__) from None


def _clock() -> float:
    return asyncio.get_running_loop().time()
