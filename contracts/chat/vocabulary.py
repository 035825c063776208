"""What can be said in a home, for speech to text: sentences and names (``GET /api/vocabulary``)."""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from contracts.wire import Part, Wire

MAX_SENTENCES: Final = 5_000
MAX_NAMES: Final = 5_000

Words = Annotated[str, StringConstraints(max_length=500)]


class SpokenSlot(Part):
    """What a slot of a sentence may hold; by default one of the names.

    Attributes:
        values: Listed values in their spoken form.
        is_number: Whether a number stands there.
    """

    values: Annotated[tuple[Words, ...], Field(max_length=MAX_NAMES)] = ()
    is_number: bool = False


class SpokenSentence(Part):
    """A declared sentence.

    Attributes:
        text: Its template, as its author wrote it.
    """

    text: Words
    slots: dict[str, SpokenSlot] = {}


class Vocabulary(Wire):
    """What one person can say on one device.

    Attributes:
        names: Of devices, areas and entities.
    """

    kind: Literal["vocabulary"] = "vocabulary"
    language: str
    sentences: Annotated[tuple[SpokenSentence, ...], Field(max_length=MAX_SENTENCES)] = ()
    names: Annotated[tuple[Words, ...], Field(max_length=MAX_NAMES)] = ()
