"""Servers that a test needs: missing ones skip it, or fail it where everything must be there."""

import os

import pytest


def require(present: bool, hint: str) -> None:
    """Skip a test, or a module of them, whose server is missing; where everything must be there, fail it."""
    if present:
        return
    if os.environ.get("STRAWBERRY_REQUIRE_ALL") == "1":
        pytest.fail(hint)
    pytest.skip(hint, allow_module_level=True)
