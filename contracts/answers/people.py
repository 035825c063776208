"""Answers about people and tokens."""

from contracts.wire import Strict, Timestamp


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
