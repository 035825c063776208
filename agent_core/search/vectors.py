"""Vectors of texts without a server: the mean of the vectors of their tokens.

``vectors.npz`` holds the token vectors of the package ``wordllama`` in four bits each; ``python -m
tests.token_vectors`` makes it. The package itself has no wheel for ARM, and needs 30 MB of others. Its
license is in ``vectors-license.txt``.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any, Final

from agent_core import limits

if TYPE_CHECKING:
    import numpy

_SPACE: Final = "\u2581"
"""What a token that begins a word begins with."""
_WORDS: Final = re.compile(rf"\S{{1,{limits.MAX_KNOWN_WORD}}}")


class TokenVectors:
    """Embeds texts.

    Args:
        tokens: In the order in which the tokenizer merges them.
        packed: Two numbers of a token's vector in each byte, as their values plus eight.
        scales: By which the numbers of each token are multiplied.
    """

    def __init__(self, tokens: Sequence[str], packed: Any, scales: Any) -> None:
        self._ids = {token: number for number, token in enumerate(tokens)}
        self._packed = packed
        self._scales = scales
        self._of_word = lru_cache(limits.MOST_KNOWN_WORDS)(self._merged)

    def embed(self, texts: Sequence[str]) -> "numpy.ndarray[Any, Any]":
        """Return a vector for each text; zeros where it has no known token."""
        import numpy as np

        made = np.zeros((len(texts), 2 * self._packed.shape[1]), dtype=np.float32)
        for vector, text in zip(made, texts, strict=True):
            if ids := list(self.tokens(text)):
                packed = self._packed[ids]
                numbers = np.concatenate((packed >> 4, packed & 15), axis=1).astype(np.float32) - 8
                vector[:] = (numbers * self._scales[ids, None]).mean(axis=0)
        return made

    def tokens(self, text: str) -> Iterator[int]:
        """Split a text as the tokenizer of Llama 2 does; characters that it spells in bytes are left out."""
        for word in _WORDS.findall(text):
            yield from self._of_word(word)

    def _merged(self, word: str) -> tuple[int, ...]:
        parts = [_SPACE, *word]
        # The pair that makes the earliest token is merged first.
        while pairs := [
            (number, place)
            for place in range(len(parts) - 1)
            if (number := self._ids.get(parts[place] + parts[place + 1])) is not None
        ]:
            _, place = min(pairs)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return tuple(self._ids[part] for part in parts if part in self._ids)


@cache
def token_vectors() -> TokenVectors:
    """Read the vectors: 50 ms, and 15 MB of memory with NumPy.

    Raises:
        ImportError: NumPy is not installed.
    """
    import numpy as np

    with as_file(files(__package__).joinpath("vectors.npz")) as file, np.load(file) as data:
        return TokenVectors(bytes(data["tokens"]).decode().split("\0"), data["packed"], data["scales"])
