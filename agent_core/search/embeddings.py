"""Search by meaning: embeddings of texts, computed in the background by a model that the home has.

Nothing waits for them for long: where the model is slow or away, the search goes by words alone.
"""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_core import limits
from agent_core.models.entries import Model
from contracts.errors import ConfigError, GatewayError
from contracts.rates import Backoff

if TYPE_CHECKING:
    import httpx
    import numpy

_log = logging.getLogger(__name__)

Embed = Callable[[Sequence[str]], Awaitable[list[list[float]]]]
"""Gives a vector for each text; raises ``GatewayError`` where there is none."""

BUDGET_S: Final = 0.3
"""How long a search waits for the vector of its query. A model on this machine takes 10 to 50 ms for it."""


@dataclass(frozen=True)
class Similar:
    """Methods by how near they are to a query in meaning.

    Attributes:
        rows: The nearest first.
        stands_out: Whether the first is nearer than the nearest of as many random ones would be.
    """

    rows: tuple[int, ...]
    stands_out: bool


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
        self._texts = {row: text[: limits.MAX_EMBEDDED_TEXT] for row, text in texts.items()}
        wanted = set(self._texts.values())
        self._vectors = {text: vector for text, vector in self._vectors.items() if text in wanted}
        self._matrix = None
        self._wake.set()

    async def run(self) -> None:
        """Compute what is missing until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while batch := self.missing[: limits.EMBEDDED_AT_ONCE]:
                vectors = await self._asked(batch, within_s=limits.EMBEDDING_REQUEST_S)
                if vectors is None:
                    await asyncio.sleep(max(0.0, self._rests_until - _clock()))
                    continue
                self._vectors.update(zip(batch, vectors, strict=True))
                self._matrix = None

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
        return self._nearest(vector, among)

    def _nearest(self, vector: Any, among: Container[int] | None) -> Similar | None:
        import numpy as np

        if self._matrix is None:
            rows = [row for row, text in self._texts.items() if text in self._vectors]
            self._matrix = rows, np.array([self._vectors[self._texts[row]] for row in rows])
        rows, matrix = self._matrix
        if not rows:
            return None
        cosines = matrix @ vector
        best = [place for place in np.argsort(-cosines) if among is None or rows[place] in among]
        if not best:
            return None
        # Cosines of different models cannot be compared, their spread can: this is about the greatest of as
        # many normally distributed values.
        chance = cosines.mean() + limits.SIMILARITY_MARGIN * cosines.std() * math.sqrt(
            2 * math.log(len(rows))
        )
        nearest = tuple(rows[place] for place in best[: limits.MOST_SIMILAR])
        return Similar(nearest, bool(cosines[best[0]] > chance))

    async def _asked(self, texts: Sequence[str], *, within_s: float) -> list[Any] | None:
        import numpy as np

        try:
            async with asyncio.timeout(within_s):
                found = await self._embed(texts)
            vectors = np.array(found, dtype=np.float32).reshape(len(texts), -1)
        except (TimeoutError, GatewayError, ValueError, TypeError, OverflowError) as error:
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
            self._size, self._vectors, self._matrix = size, {}, None
            self._queries.clear()
            self._wake.set()
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return list(vectors / np.where(lengths > 0, lengths, 1))

    def _failed(self, why: str) -> None:
        if not self._is_failing:
            _log.warning("search goes by words alone: the embedding model failed: %s", why)
            self._is_failing = True
        self._rests_until = _clock() + self._backoff.next()


@asynccontextmanager
async def open_embeddings(
    model: Model, *, tasks: asyncio.TaskGroup, budget_s: float = BUDGET_S
) -> AsyncIterator[Embeddings]:
    """Open the connection to a model and compute in the background until the block is left.

    Args:
        tasks: Owns the background task.
        budget_s: How long a query may wait for its vector.

    Raises:
        ConfigError: If NumPy is not installed.
    """
    import httpx

    try:
        import numpy  # noqa: F401 - 60 ms and 20 MB that only this needs
    except ImportError:
        raise ConfigError(
            "[embeddings] needs NumPy", hint="Install it: pip install 'strawberry-home[embeddings]'."
        ) from None
    async with httpx.AsyncClient(timeout=limits.EMBEDDING_REQUEST_S) as client:
        embeddings = Embeddings(_OpenAIEmbeddings(client, model), budget_s=budget_s)
        running = tasks.create_task(embeddings.run(), name="embeddings")
        try:
            yield embeddings
        finally:
            running.cancel()


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
        """See ``Embed``."""
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
