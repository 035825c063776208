"""Vectors of texts without a server: the mean of the vectors of their tokens.

Both are files of the package ``wordllama``, which is in ``[hub]`` where it has a wheel. It is not imported:
its loader would fetch the tokenizer from the network.
"""

import importlib.util
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_core import limits

if TYPE_CHECKING:
    import numpy

_VECTORS: Final = Path("weights", "l2_supercat_256.safetensors")
_TOKENIZER: Final = Path("tokenizers", "l2_supercat_tokenizer_config.json")


class TokenVectors:
    """Embeds texts.

    Args:
        package: The folder of ``wordllama``.
    """

    def __init__(self, package: Path) -> None:
        from safetensors import safe_open
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(package / _TOKENIZER))
        # It would keep 10,000 whole texts, 1.5 kB and more each, and in each thread others.
        self._tokenizer.model._resize_cache(0)
        # The file is mapped into memory, so that only the parts with the vectors of used tokens are read.
        file: Any = safe_open(package / _VECTORS, framework="numpy")
        rows = file.get_slice("embedding.weight")
        self._size = rows.get_shape()[1]
        self._vector = lru_cache(limits.MOST_KNOWN_TOKENS)(lambda number: rows[number : number + 1][0])

    def embed(self, texts: Sequence[str]) -> "numpy.ndarray[Any, Any]":
        """Return a vector for each text; zeros where it has no token."""
        import numpy as np

        made = np.zeros((len(texts), self._size), dtype=np.float32)
        for vector, text in zip(made, texts, strict=True):
            # Not `encode_batch`: its threads warn on stderr when a process is started later.
            if ids := self._tokenizer.encode(" ".join(text.split()), add_special_tokens=False).ids:
                vector[:] = np.mean([self._vector(number) for number in ids], axis=0, dtype=np.float32)
        return made


def vectors_package() -> Path | None:
    """Return the folder of ``wordllama``; None where it is not installed."""
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    return package if (package / _VECTORS).is_file() and (package / _TOKENIZER).is_file() else None


@cache
def token_vectors() -> TokenVectors:
    """Open the vectors of the installed package."""
    package = vectors_package()
    if package is None:
        raise ImportError("wordllama is not installed")
    return TokenVectors(package)
