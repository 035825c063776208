"""Makes ``agent_core/search/vectors.npz`` of the package ``wordllama`` (in the dev extra)."""

from pathlib import Path
from typing import Any

import numpy as np

import agent_core.search
from tests.embedding_server import token_model

_FILE = Path(agent_core.search.__file__).with_name("vectors.npz")


def main() -> None:
    """Write it."""
    tokenizer, weights = token_model()
    scales = _scales(weights)
    values = _rounded(weights, scales).astype(np.uint8) + 8
    half = values.shape[1] // 2
    tokens = [tokenizer.id_to_token(number) for number in range(len(weights))]
    np.savez_compressed(
        _FILE,
        tokens=np.frombuffer("\0".join(tokens).encode(), dtype=np.uint8),
        packed=(values[:, :half] << 4 | values[:, half:]).astype(np.uint8),
        scales=scales[:, 0],
    )


def _scales(weights: Any) -> Any:
    """Choose for each token the scale with the least error: outliers are cut."""
    largest = np.abs(weights).max(axis=1, keepdims=True)
    tried = np.stack([(largest * part / 7 + 1e-9).astype(np.float16) for part in np.linspace(0.5, 1, 11)])
    errors = np.stack([((_rounded(weights, each) * each - weights) ** 2).sum(axis=1) for each in tried])
    return np.take_along_axis(tried, errors.argmin(axis=0)[None, :, None], axis=0)[0]


def _rounded(weights: Any, scales: Any) -> Any:
    return np.clip(np.round(weights / scales.astype(np.float32)), -7, 7)


if __name__ == "__main__":
    main()
