"""A model server that answers as a script says: OpenAI-compatible, over real HTTP, on loopback.

It runs in threads of its own, so that synchronous and asynchronous tests use it alike, and alone:
``python -m tests.model_server SCRIPT.json`` prints its address. A request that a real server would
refuse is refused here too, with status 400, so that no test passes on a conversation that no
provider would take.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from agent_core.models.entries import LOCAL_ONLY
from tests.model_server.script import (
    Breaks,
    Fails,
    Garbles,
    Hangs,
    Reply,
    Says,
    Script,
    ScriptedCall,
    SeenRequest,
    calls,
    text_of,
)
from tests.model_server.server import ScriptedModel

__all__ = [
    "Breaks",
    "Fails",
    "Garbles",
    "Hangs",
    "Reply",
    "Says",
    "Script",
    "ScriptedCall",
    "ScriptedModel",
    "SeenRequest",
    "calls",
    "only_local_models",
    "text_of",
]


@contextmanager
def only_local_models() -> Iterator[None]:
    """Restrict the gateways of this process and its children to models on loopback."""
    before = os.environ.get(LOCAL_ONLY)
    os.environ[LOCAL_ONLY] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(LOCAL_ONLY, None)
        else:
            os.environ[LOCAL_ONLY] = before
