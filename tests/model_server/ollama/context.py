"""What of a conversation a model gets to see: as much as its context holds."""

import json
from typing import Any, Final

from tests.model_server.script import text_of

DEFAULT_NUM_CTX: Final = 4096
"""Tokens of a context where neither request nor Modelfile says how many."""

_CHARS_PER_TOKEN: Final = 4
_MESSAGE_TOKENS: Final = 4


def tokens_of(messages: list[dict[str, Any]], tools: list[Any]) -> int:
    """Count the tokens of a prompt, at four characters each."""
    calls = [message["tool_calls"] for message in messages if message.get("tool_calls")]
    size = sum(map(len, map(text_of, messages))) + sum(len(json.dumps(each)) for each in (*calls, *tools))
    return size // _CHARS_PER_TOKEN + _MESSAGE_TOKENS * len(messages)


def fitting(messages: list[dict[str, Any]], tools: list[Any], num_ctx: int) -> list[dict[str, Any]]:
    """Leave out the oldest messages until the rest fits, without a word.

    System messages and the last message always stay, as in Ollama.
    """
    for start in range(len(messages)):
        kept = [
            message
            for number, message in enumerate(messages)
            if number >= start or message.get("role") == "system"
        ]
        if tokens_of(kept, tools) <= num_ctx:
            return kept
    return [message for message in messages[:-1] if message.get("role") == "system"] + messages[-1:]
