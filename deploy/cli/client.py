"""A client of the hub's HTTP API, on the standard library alone: a command is to start at once."""

import http.client
import json
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from contracts.addresses import host_of, is_loopback
from contracts.errors import ConfigError, Forbidden, NotFound, StrawberryError, Unauthorized
from deploy.home.directory import Home
from identity.files import is_held

_CONNECT_TIMEOUT_S = 10.0
_LOOK_S = 1.0
"""How long the spoke of this machine may take to say that it is there."""
_NO_HUB = "Start one with 'strawberry up', or name another with --hub URL."
_HUB_ELSEWHERE = (
    "It runs on another machine. 'strawberry chat' needs the spoke here: 'strawberry spoke run'; "
    "for all else name the hub with --hub URL."
)
_ANSWER_TIMEOUT_S = 900.0
"""As long as the hub lets a turn take."""


class NeedsConfirmation(StrawberryError):
    """The call waits for a person's word.

    Attributes:
        confirmation: What to send with the same call once the person has said yes.
    """

    def __init__(self, message: str, *, hint: str, confirmation: str) -> None:
        super().__init__(message, hint=hint)
        self.confirmation = confirmation


class HubClient:
    """Speaks to one hub as one user, or to a spoke, which takes the same messages.

    Args:
        url: Base address, for example ``http://127.0.0.1:8321``.
        token: Bearer token of a user.
        what: Which of the two it is.
        authorities: PEM of those who may vouch for an ``https`` address, besides the system's.
    """

    def __init__(self, url: str, *, token: str, authorities: str = "", what: str = "hub") -> None:
        self._what = what
        self.url = url.rstrip("/")
        self._token = token
        self._authorities = authorities

    @classmethod
    def find(cls, home: Home, *, url: str | None) -> "HubClient":
        """Find the running hub and the token to speak to it with.

        Args:
            home: Where a hub of this machine left its address and the owner's token.
            url: Another hub; its token comes from ``STRAWBERRY_TOKEN``.

        Raises:
            ConfigError: If no hub is known, or there is no token for it.
        """
        target = _running_hub(home) if url is None else _checked(url)
        token = os.environ.get("STRAWBERRY_TOKEN", "")
        if not token and (url is None or is_loopback(host_of(url))):
            # The owner's token is for this machine's hub; another address must never see it.
            token = _read(home.token_file)
        if not token:
            raise ConfigError(
                f"there is no token for the hub at {target}",
                hint="Put one into STRAWBERRY_TOKEN; 'strawberry tokens add NAME' on the hub makes it.",
            )
        return cls(target, token=token, authorities=_authorities(home) if _is_secure(target) else "")

    @classmethod
    def nearest(cls, home: Home) -> "HubClient":
        """Find whom to talk to on this machine: its spoke, which goes on without the hub, or else its hub.

        Raises:
            ConfigError: If neither is known.
        """
        # Whoever brings a token of their own is not the owner of this machine's spoke.
        spoke = None if os.environ.get("STRAWBERRY_TOKEN") else _running_spoke(home)
        if spoke is not None and spoke.is_there():
            return spoke
        try:
            return cls.find(home, url=None)
        except ConfigError:
            if spoke is None:
                raise
            # One that hangs must keep nobody from the hub; where there is none, it is waited for.
            return spoke

    def is_there(self) -> bool:
        """Whether it answers at once."""
        try:
            self.request("GET", "/api/health", timeout=_LOOK_S)
        except StrawberryError:
            return False
        return True

    def request(self, method: str, path: str, body: Any = None, *, timeout: float = _ANSWER_TIMEOUT_S) -> Any:
        """Send a request and give the JSON answer.

        Raises:
            StrawberryError: With the hub's own message and hint, or saying that it cannot be reached.
        """
        connection, response = self._send(method, path, body, timeout=timeout)
        with connection:
            text = self._receive(response)
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise StrawberryError(f"{self.url} does not answer like a hub", hint="Check --hub.") from None

    def stream(self, path: str, body: Any, headers: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Post and give each JSON event of the answer's server-sent stream."""
        connection, response = self._send("POST", path, body, headers=headers)
        with connection:
            try:
                for line in response:
                    text = line.decode("utf-8", "replace").strip()
                    if text == "data: [DONE]":
                        return
                    if text.startswith("data:"):
                        yield json.loads(text.removeprefix("data:"))
            except (OSError, http.client.HTTPException, ValueError):
                pass
        raise StrawberryError("the answer broke off", hint="What was done so far stays done; ask again.")

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        headers: dict[str, str] | None = None,
        timeout: float = _ANSWER_TIMEOUT_S,
    ) -> tuple["_Connection", http.client.HTTPResponse]:
        connection = _Connection(self.url, self._authorities)
        try:
            response = connection.send(
                method,
                path,
                None if body is None else json.dumps(body).encode(),
                {
                    "Authorization": f"Bearer {self._token}",
                    "Content-Type": "application/json",
                    **(headers or {}),
                },
                timeout=timeout,
            )
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise StrawberryError(
                f"the certificate of the hub at {self.url} is not trusted here: {error.verify_message}",
                hint="Join this machine ('strawberry spoke join'), or put the hub's certs/ca.pem into "
                "certs/ca.pem of the data directory here.",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise StrawberryError(
                f"the {self._what} at {self.url} cannot be reached: {reason}",
                hint="Is it running? 'strawberry up' starts one.",
            ) from None
        if response.status >= http.client.BAD_REQUEST:
            with connection:
                raise _refusal(response.status, self._receive(response))
        return connection, response

    def _receive(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read()
        except (OSError, http.client.HTTPException):
            raise StrawberryError(f"the {self._what} at {self.url} broke off its answer") from None


class _Connection:
    """One HTTP connection, closed with its answer."""

    def __init__(self, url: str, authorities: str) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        self._base = parts.path.rstrip("/")
        self._connection: http.client.HTTPConnection
        if _is_secure(url):
            context = ssl.create_default_context()
            if authorities:
                context.load_verify_locations(cadata=authorities)
            self._connection = http.client.HTTPSConnection(
                host, parts.port, timeout=_CONNECT_TIMEOUT_S, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, parts.port, timeout=_CONNECT_TIMEOUT_S)

    def send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], *, timeout: float
    ) -> http.client.HTTPResponse:
        self._connection.connect()
        self._connection.sock.settimeout(timeout)
        self._connection.request(method, self._base + path, body, headers)
        return self._connection.getresponse()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "_Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{url!r} is not the address of a hub", hint="For example http://127.0.0.1:8321.")
    return url


def _is_secure(url: str) -> bool:
    return urlsplit(url).scheme == "https"


def _authorities(home: Home) -> str:
    """Give the authorities that this machine has learned to trust: its own home's, and that of its spoke."""
    found = _read(home.certs / "ca.pem")
    try:
        enrolment = json.loads(_read(home.spoke / "enrolment.json") or "{}")
    except ValueError:
        enrolment = {}
    return "\n".join(filter(None, (found, str(enrolment.get("ca") or ""))))


def _running_spoke(home: Home) -> HubClient | None:
    try:
        said = json.loads(home.spoke_address_file.read_text())
        url, process = str(said["url"]), int(said["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not is_held(home.spoke, by=process):
        return None
    return HubClient(url, token=_read(home.spoke_token_file), what="spoke")


def _running_hub(home: Home) -> str:
    try:
        said = json.loads(home.address_file.read_text())
        url, process = str(said["url"]), int(said["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        url, process = "", 0
    # A hub that was killed leaves its address behind, and somebody else may have the port by now.
    if not url or not is_held(home.hub, by=process):
        raise ConfigError(
            f"no hub is running that uses {home.directory}",
            hint=_HUB_ELSEWHERE if home.is_spoke_alone else _NO_HUB,
        )
    return url


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _refusal(status: int, text: bytes) -> StrawberryError:
    try:
        error = json.loads(text)["error"]
        message, hint = str(error["message"]), str(error.get("hint") or "")
        confirmation = error.get("confirmation")
    except (ValueError, KeyError, TypeError, AttributeError):
        return StrawberryError(f"the hub answered with status {status}", hint="Is --hub a hub's address?")
    if confirmation:
        return NeedsConfirmation(message, hint=hint, confirmation=str(confirmation))
    if status == http.HTTPStatus.UNAUTHORIZED:
        hint = hint or "Is STRAWBERRY_TOKEN a token of this hub? 'strawberry tokens add NAME' makes one."
    kinds: dict[int, type[StrawberryError]] = {401: Unauthorized, 403: Forbidden, 404: NotFound}
    return kinds.get(status, StrawberryError)(message, hint=hint)
