"""Answers about people and tokens."""

from typing import Annotated

from pydantic import Field

from contracts import limits
from contracts.wire import Strict, Timestamp

_Label = Annotated[str, Field(max_length=limits.MAX_LABEL)]


class PersonAnswer(Strict):
    """A person as they see themselves; language and time zone are null where the household's apply."""

    id: str
    name: str
    role: str
    language: str | None
    time_zone: str | None


class UserAnswer(PersonAnswer):
    """A person as an admin sees them."""

    has_password: bool


class CodeAnswer(Strict):
    """A one-time code with which a person chooses a password; it is shown once and stored nowhere.

    Attributes:
        link: To the page for that; the code stands behind ``#``, which no browser sends.
        reachable: Whether the address in the link is one for other machines, too.
    """

    user: UserAnswer
    code: str
    link: str
    expires_at: Timestamp
    reachable: bool


class TokenSummary(Strict):
    """A token that was issued.

    Attributes:
        session: Whether it is the session of a browser.
        current: Whether it is the one that asks.
    """

    jti: str
    kind: str
    subject: str
    owner: str
    name: str
    scope: str
    issued_at: Timestamp
    expires_at: Timestamp
    revoked_at: Timestamp | None
    session: bool
    current: bool


class TokenAnswer(Strict):
    """A token; it is shown once and stored nowhere."""

    token: str


class HomeCard(Strict):
    """One card of a person's *Home*, as that person wants it.

    Attributes:
        id: Of a skill ``device.Skill``, of entities their room and device.
        star: Whether it is shown above the rooms.
        name: In place of its own; empty for that.
        names: In place of the names of its values and controls.
    """

    id: Annotated[str, Field(min_length=1, max_length=limits.MAX_HOME_CARD_ID)]
    star: bool = False
    hidden: bool = False
    name: _Label = ""
    names: Annotated[
        dict[Annotated[str, Field(max_length=limits.MAX_HOME_CARD_ID)], _Label],
        Field(max_length=limits.MOST_HOME_NAMES),
    ] = {}


class HomeLayout(Strict):
    """The cards of a person's *Home* in their order; a card that is not named comes after them."""

    cards: Annotated[list[HomeCard], Field(max_length=limits.MOST_HOME_CARDS)] = []
