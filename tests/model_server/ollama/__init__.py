"""A server that behaves as Ollama does on the wire, over real HTTP, on loopback.

It has models, pulls further ones from a library, forgets what does not fit into its context, and
refuses what Ollama refuses, in its words. What a model answers is scripted as for ``ScriptedModel``.
"""

from tests.model_server.ollama.model import FakeModel
from tests.model_server.ollama.server import FakeOllama, OllamaRequest

__all__ = ["FakeModel", "FakeOllama", "OllamaRequest"]
