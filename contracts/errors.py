"""Every error that Strawberry raises on purpose, and the form of an error answer over HTTP.

::

    StrawberryError
    ├── ConfigError             a setting or file of the user cannot be used
    │   ├── PortTaken           another program listens where we should
    │   └── FileProblem         a mistake in a file that people edit; carries its line
    ├── StorageError            a database cannot be read or written
    │   └── Superseded          another replica of the hub leads by now
    ├── InvalidMessage          a message that does not keep to the contracts
    │   ├── InvalidTopic
    │   ├── PredicateError      a watcher's predicate that cannot be read; carries its column
    │   └── BadSignature
    ├── LinkError               the bus, or the way to the hub
    │   ├── Disconnected
    │   ├── LoginRefused
    │   └── HubUnreachable      the hub gave no answer over HTTP
    │       ├── HubRefused
    │       ├── HubUntrusted
    │       └── HubBroken
    ├── Unauthorized            no valid token
    │   └── StaleProof          a proof of possession whose time is not now
    ├── Forbidden               a valid token without the right
    │   └── PasswordNeeded      a session whose person must type the password again
    ├── NotFound                names nothing that exists
    ├── Conflict                exists already, or was used already
    ├── TooManyRequests         too often in too short a time
    ├── CallError               a skill call that gave no result; carries an ErrorCode
    │   └── Declined            its person was asked, and did not say yes
    ├── StillRunning            a method that was asked to stop and did not: its outcome is not known
    ├── SandboxError            the sandbox cannot be had
    │   └── SandboxMissing      it was never installed
    ├── GatewayError            no model gave an answer
    │   └── NoModel             there is none to ask
    ├── SpeechError             an engine of speech is missing, or gave nothing
    │   └── SoundError          the microphone or the loudspeaker cannot be used
    └── NotAnswered             what became of a turn that the hub did not answer
        ├── NotServed
        └── Unsure
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from contracts.phrases import Phrase, read_phrases


class StrawberryError(Exception):
    """An expected failure.

    Args:
        message: One line: what happened. A template where there are values.
        hint: One line: what to do about it, with the same values; may be empty.
        values: By the names in message and hint, see `Phrase`; another error stands for its message.

    Example:
        ``NotFound("there is no watcher {name!r}", name=name, hint="'strawberry watchers list' lists them.")``
    """

    def __init__(self, message: str, *, hint: str = "", **values: Any) -> None:
        self.message: str = Phrase(message, **values)
        self.hint: str = Phrase(hint, **values)
        super().__init__(self.message)

    @property
    def members(self) -> Mapping[str, Any]:
        # Subclasses add members to the problem details.
        return {}


class ConfigError(StrawberryError):
    """A setting or a file of the user cannot be used."""


class PortTaken(ConfigError):
    """Another program listens on the port; the message names it where the system tells."""


class FileProblem(ConfigError):
    """A mistake in a file that people edit.

    Attributes:
        line: Where it is, from 1; None where it is no certain line.
    """

    def __init__(self, message: str, *, hint: str = "", line: int | None = None, **values: Any) -> None:
        super().__init__(message, hint=hint, line=line, **values)
        self.line = line


class StorageError(StrawberryError):
    """A database cannot be read or written: the disk is full, or the file is damaged."""

    @classmethod
    def of(cls, path: object, reason: str, *, without: str) -> "StorageError":
        """Return the error in words, with what to do.

        Args:
            path: Of the database.
            reason: What SQLite says.
            without: What follows from removing a damaged file: ``to start with an empty home``.
        """
        if "full" in reason:
            return DiskFull("the disk is full: {path} cannot be written", path=path, hint="Free some space.")
        if "malformed" in reason or "not a database" in reason:
            return cls(
                "the database {path} is damaged",
                path=path,
                hint="Stop Strawberry, then restore a backup, or remove the file {without}.",
                without=Phrase(without),
            )
        if "locked" in reason:
            return cls(
                "another process has held the database {path} for too long", path=path, hint="Try again."
            )
        return cls(
            "the database {path} cannot be used: {reason}",
            path=path,
            reason=reason,
            hint="Check its owner and its rights, and the disk.",
        )


class DiskFull(StorageError):
    """There is no room for what is to be written; reading still works."""


class Superseded(StorageError):
    """Another replica of the hub leads by now: this one neither writes nor calls what the leader does."""


class InvalidMessage(StrawberryError):
    """A message on the bus, or a request, that does not keep to the contracts.

    Attributes:
        errors: Every mistake in it as ``{"field", "detail"}``, where there may be several.
    """

    def __init__(
        self, message: str, *, hint: str = "", errors: Sequence[Mapping[str, str]] = (), **values: Any
    ) -> None:
        super().__init__(message, hint=hint, **values)
        self.errors = errors

    @property
    def members(self) -> Mapping[str, Any]:
        return {"errors": self.errors} if self.errors else {}


class InvalidTopic(InvalidMessage):
    """A topic that is in no row of the topics table, or a name that cannot stand in one."""


class PredicateError(InvalidMessage):
    """A predicate of a watcher that cannot be read.

    Attributes:
        position: Column of the mistake, from 1; the message names it.
    """

    def __init__(self, message: str, *, hint: str = "", position: int, **values: Any) -> None:
        super().__init__(message, hint=hint, position=position, **values)
        self.position = position


class BadSignature(InvalidMessage):
    """A message whose signature is missing, malformed, or not by the expected key."""


class LinkError(StrawberryError):
    """The bus cannot be used."""


class Disconnected(LinkError):
    """The link is not connected right now; nothing was sent."""


class LoginRefused(LinkError):
    """The broker refused the login."""


class HubUnreachable(LinkError):
    """The hub gave no answer over HTTP, or not one of a hub."""


class HubRefused(HubUnreachable):
    """Connections to the hub's address are refused."""


class HubUntrusted(HubUnreachable):
    """The server cannot prove to be the hub: its certificate is not valid. Nothing was sent to it."""


class HubBroken(HubUnreachable):
    """The connection was lost after the request was sent: the hub may have acted on it."""


class Unauthorized(StrawberryError):
    """There is no valid token; the message says what is wrong with it."""


class StaleProof(Unauthorized):
    """A proof of possession from another time; it can be made again by the hub's clock."""


class Forbidden(StrawberryError):
    """The token is valid and does not carry the right."""


class PasswordNeeded(Forbidden):
    """The session may do it once its person has typed the password again."""


class NotFound(StrawberryError):
    """The name or id names nothing that exists."""


class Conflict(StrawberryError):
    """The thing exists already, or was used already."""


class TooManyRequests(StrawberryError):
    """The same was tried too often in too short a time.

    Attributes:
        retry_after_s: Whole seconds until it may be tried again, where that is known.
    """

    def __init__(
        self, message: str, *, hint: str = "", retry_after_s: int | None = None, **values: Any
    ) -> None:
        super().__init__(message, hint=hint, retry_after_s=retry_after_s, **values)
        self.retry_after_s = retry_after_s


class ErrorCode(StrEnum):
    """Why a skill call gave no result, as it crosses the bus."""

    OFFLINE = "offline"
    UNKNOWN_SKILL = "unknown_skill"
    BAD_ARGUMENTS = "bad_arguments"
    REFUSED = "refused"
    NEEDS_CONFIRMATION = "needs_confirmation"
    BUSY = "busy"
    TOO_LARGE = "too_large"
    EXPIRED = "expired"
    STALE_EPOCH = "stale_epoch"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SKILL_ERROR = "skill_error"
    OUTCOME_UNKNOWN = "outcome_unknown"


class CallError(StrawberryError):
    """A skill call that gave no result.

    Attributes:
        code: Why.
        device: Id or key of the device concerned, where there is one.
        shown: What a person sees beside the arguments when the code is ``needs_confirmation``, by name.
        exception: Class of what a skill raised; for log and model, not for people.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        hint: str = "",
        device: str | None = None,
        shown: Mapping[str, Any] | None = None,
        exception: str = "",
        **values: Any,
    ) -> None:
        super().__init__(message, hint=hint, device=device, **values)
        self.code = code
        self.device = device
        self.shown = shown or {}
        self.exception = exception

    @property
    def members(self) -> Mapping[str, Any]:
        return {"device": self.device} if self.device else {}

    @property
    def detail(self) -> str:
        return f"{self.exception}: {self.message}" if self.exception else self.message


class Declined(CallError):
    """The person was asked whether a call may be made, and did not say yes."""


class StillRunning(StrawberryError):
    """A method was asked to stop and did not, so that its outcome is not known.

    A call that ends so gets no reply, now or later: only the hub concludes ``outcome_unknown``.
    """


class SandboxError(StrawberryError):
    """The sandbox cannot be started or installed."""


class SandboxMissing(SandboxError):
    """The sandbox was not installed in this directory."""


class GatewayError(StrawberryError):
    """No model gave an answer; the message names what each one said."""


class NoModel(GatewayError):
    """No model can be asked: none is configured, none has its key, or their tokens are used up."""


class SpeechError(StrawberryError):
    """An engine of speech is not installed, cannot be reached, or gave nothing."""


class SoundError(SpeechError):
    """The microphone or the loudspeaker cannot be opened, or is gone."""


class NotAnswered(StrawberryError):
    """The hub did not answer a turn of a spoke; the message says why."""


class NotServed(NotAnswered):
    """The hub does not run the turn, and never will.

    Attributes:
        by_hub: What the hub itself said; None where it was not reached.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        by_hub: Literal["no_model", "refused"] | None = None,
        **values: Any,
    ) -> None:
        super().__init__(message, hint=hint, **values)
        self.by_hub = by_hub


class Unsure(NotAnswered):
    """The hub may be running the turn, or may have run it."""


STATUSES: Final[tuple[tuple[type[StrawberryError], int, str], ...]] = (
    (StaleProof, 401, "stale_proof"),
    (Unauthorized, 401, "unauthorized"),
    (PasswordNeeded, 403, "password_needed"),
    (Forbidden, 403, "forbidden"),
    (NotFound, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (InvalidMessage, 422, "invalid"),
    (InvalidMessage, 413, "too_large"),
    (TooManyRequests, 429, "rate_limited"),
    (LinkError, 503, "bus_unavailable"),
    (SandboxError, 503, "sandbox_unavailable"),
    (GatewayError, 503, "no_model"),
    (SpeechError, 503, "speech_unavailable"),
    (StorageError, 503, "storage_unavailable"),
    (ConfigError, 500, "configuration"),
)
"""Status and code of an error over HTTP: of its first row here. Clients read them back."""
_REFUSALS: Final = {status: kind for kind, status, _ in STATUSES if status < 500}
"""The most general kind of each; what is wrong at the server is no error of that kind at its client."""

PROBLEM_JSON: Final = "application/problem+json"
"""Media type of problem details."""

_OWN: Final = frozenset({"type", "title", "status", "detail", "message", "code", "hint", "param"})


@dataclass(frozen=True)
class ProblemDetails:
    """What an error answer over HTTP says: problem details (RFC 9457), as clients read them.

    Attributes:
        message: One line: what happened.
        code: Which error it is; empty where the answer names none.
        hint: One line: what to do about it; may be empty.
        more: Its further members, for example ``confirmation``.
    """

    message: str
    code: str
    hint: str
    more: dict[str, Any]

    @classmethod
    def read(cls, body: Any) -> "ProblemDetails | None":
        """Read the JSON of an answer, in this form or that of OpenAI's API; None where it is no error."""
        if isinstance(body, dict) and isinstance(body.get("error"), dict):
            body = body["error"]
        if not isinstance(body, dict) or not (body.get("detail") or body.get("message")):
            return None
        body = read_phrases(dict(body))
        message, hint = body.get("detail") or body["message"], body.get("hint") or ""
        more = {name: value for name, value in body.items() if name not in _OWN}
        return cls(Phrase(message), str(body.get("code") or ""), Phrase(hint), more)

    def kind(self, status: int) -> type[StrawberryError] | None:
        """Return which error an answer with a status below 500 stands for; None where there is none."""
        exact = (each for each, at, code in STATUSES if (at, code) == (status, self.code) and at < 500)
        return next(exact, _REFUSALS.get(status))
