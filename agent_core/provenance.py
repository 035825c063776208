"""Where text comes from, and the one function that puts it into a prompt.

Only a person's own words tell the model what to do. Those and the model's stand as they are; all other text
is put between marks that name its origin, and that it can neither close nor imitate.
"""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType

from agent_core import limits
from contracts.text import shortened
from contracts.wire import Json

Prompt = NewType("Prompt", str)
"""Text as a model is shown it: our own, written in this program, or made by `render`."""

EMPTY: Final = Prompt("")


_BLANK: Final = r"[\s/\\\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]*"
"""What may stand between a bracket and a word that it opens, seen or unseen."""

_BRACKETS: Final = "<\uff1c["
_MARK: Final = re.compile(
    rf"[<\uff1c](?={_BLANK}(?:data\b|context\b|system\b|user\b|assistant\b|tool|im_|start_of|end_of|eot|[be]?os\s*>|s\s*>|[|\uff5c<]))"
    rf"|\[(?={_BLANK}(?:INST|TOOL_|AVAILABLE_TOOLS|SYSTEM_PROMPT)\b)",
    re.IGNORECASE,
)
"""Beginnings of our own marks, and of those by which model servers part one message from the next."""


class Origin(StrEnum):
    """Where a text comes from.

    ``OUTSIDE`` is what strangers may have written: web pages, mail, and what a client program says was said.
    """

    PERSON = "person"
    ASSISTANT = "assistant"
    DEVICE = "device"
    SKILL = "skill result"
    FILE = "file"
    OUTSIDE = "outside"


@dataclass(frozen=True)
class Text:
    """Text with its origin.

    Attributes:
        about: What it is, more closely: the path of a method, the id of a device.
    """

    origin: Origin
    text: str
    about: str = ""


def render(*parts: Text | Prompt) -> Prompt:
    return Prompt("\n".join(_rendered(part) if isinstance(part, Text) else part for part in parts))


def render_name(name: str) -> Prompt:
    """Write a name from outside for use in text of ours: in quotes, short, on one line."""
    line = shortened(" ".join(name.split()), limits.MAX_SOURCE_NAME)
    return Prompt(json.dumps(_harmless(line), ensure_ascii=False))


def render_schema(schema: Json) -> Json:
    """Make a device's JSON Schema fit for a tool definition: texts in it are marked and cut."""
    match schema:
        case dict():
            return {
                _harmless(key): _schema_text(value)
                if key == "description" and isinstance(value, str)
                else render_schema(value)
                for key, value in schema.items()
                if not (key == "title" and isinstance(value, str))
            }
        case list():
            return [render_schema(each) for each in schema]
        case str():
            return _harmless(schema)
    return schema


def _schema_text(text: str) -> Prompt:
    return render(Text(Origin.DEVICE, shortened(" ".join(text.split()), limits.MAX_SCHEMA_TEXT)))


def _rendered(part: Text) -> str:
    if part.origin in (Origin.PERSON, Origin.ASSISTANT):
        return part.text
    about = f" of={render_name(part.about)}" if part.about else ""
    return f'<data from="{part.origin}"{about}>\n{_harmless(part.text)}\n</data>'


def _harmless(text: str) -> str:
    # Most texts have no bracket, and to look for one takes a hundredth of what the pattern does.
    if not any(bracket in text for bracket in _BRACKETS):
        return text
    return _MARK.sub(lambda mark: "&#91;" if mark.group() == "[" else "&lt;", text)
