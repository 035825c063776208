"""A client of the HTTP API, on the standard library, so that a command starts at once."""

import http.client
import json
import socket
import ssl
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from contracts.errors import ProblemDetails, StrawberryError, Unauthorized
from deploy import limits
from identity.logins import challenges

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

_NOT_A_HUB: Final = "Check the address: the hub's own is printed by 'strawberry up'."


def api(*parts: str, **query: Any) -> str:
    """Return the path of an API: each part stands for itself, and what is None is left out of the query."""
    path = "/api/" + "/".join(quote(part, safe="") for part in parts)
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


class NeedsConfirmation(StrawberryError):
    """The call waits for a yes.

    Attributes:
        confirmation: Goes with the same call once the person has said yes.
        arguments: What the person confirms, by name.
    """

    def __init__(self, message: str, *, hint: str, confirmation: str, arguments: dict[str, Any]) -> None:
        super().__init__(message, hint=hint)
        self.confirmation = confirmation
        self.arguments = arguments


class HubClient:
    """Sends requests to one hub as one user, or to a spoke, which takes the same messages.

    Args:
        url: Base address, for example ``http://127.0.0.1:8321``.
        token: Bearer token of a user.
        server: What it is, ``hub`` or ``spoke``.
        authorities: PEM of certificate authorities to trust besides the system's.
        token_from: Where the token was found, for a person whose token is refused.
    """

    def __init__(
        self, url: str, *, token: str, authorities: str = "", server: str = "hub", token_from: str = ""
    ) -> None:
        self.url = url.rstrip("/")
        self.server = server
        self._name = f"the {server} at {self.url}"
        self.token = token
        self._token_from = token_from or "what was given"
        self._authorities = authorities

    @property
    def token_id(self) -> str:
        # The token of a spoke has none.
        return str(self._of_token(1, "jti"))

    def answers_within(self, seconds: float) -> bool:
        """Return whether it answers in this time, and proves who it is."""
        try:
            self.prove(seconds)
        except StrawberryError:
            return False
        return True

    def prove(self, seconds: float) -> None:
        """Verify the server's identity, for a caller that sends the token in another way.

        Raises:
            StrawberryError: If it does not, or does not answer in this time.
        """
        self._open(seconds).close()

    def get(
        self, path: str, kind: "type[T] | TypeAdapter[T]", *, timeout: float = limits.ANSWER_TIMEOUT_S
    ) -> T:
        """Return the answer to ``GET``.

        Args:
            kind: What the answer is: a model, a list of them, or an adapter where that is no class.

        Raises:
            StrawberryError: With the hub's own message and hint, or saying why there is no answer.
        """
        return self._read(kind, self._text("GET", path, timeout=timeout))

    def post(self, path: str, body: Any, kind: "type[T] | TypeAdapter[T]") -> T:
        return self.send("POST", path, body, kind)

    def send(self, method: str, path: str, body: Any, kind: "type[T] | TypeAdapter[T]") -> T:
        return self._read(kind, self._text(method, path, body))

    def delete(self, path: str, kind: "type[T] | TypeAdapter[T]") -> T:
        return self.send("DELETE", path, None, kind)

    def _read(self, kind: "type[T] | TypeAdapter[T]", text: bytes | str) -> T:
        from pydantic import TypeAdapter  # here: 'strawberry chat' starts without it

        adapter = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
        try:
            # A newer hub may say more, and so may a device of its nodes.
            return adapter.validate_json(text, extra="allow")
        except ValueError:
            hint = "Update both: 'strawberry update'."
            raise StrawberryError(f"{self._name} is of another version", hint=hint) from None

    def request(
        self, method: str, path: str, body: Any = None, *, timeout: float = limits.ANSWER_TIMEOUT_S
    ) -> Any:
        """Send a request, and return the JSON of the answer; see `get`."""
        text = self._text(method, path, body, timeout=timeout)
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise StrawberryError(f"{self._name} is not a Strawberry hub", hint=_NOT_A_HUB) from None

    def _text(
        self, method: str, path: str, body: Any = None, *, timeout: float = limits.ANSWER_TIMEOUT_S
    ) -> bytes:
        connection, response = self._send(method, path, body, timeout=timeout)
        with closing(connection):
            return self._receive(response)

    def download(self, path: str) -> bytes:
        """Return what is at a path, as it is.

        Raises:
            StrawberryError: As ``request``.
        """
        return self._text("GET", path)

    def stream(
        self, path: str, body: Any, headers: dict[str, str], *, method: str = "POST"
    ) -> Iterator[dict[str, Any]]:
        """Send a request, and yield each JSON event of the answer's server-sent stream.

        Raises:
            StrawberryError: As ``request``, and where the stream ends before its end mark.
        """
        for text in self._data(method, path, body, headers, timeout=limits.ANSWER_TIMEOUT_S):
            if text == "[DONE]":
                return
            yield json.loads(text)
        raise StrawberryError("the answer broke off", hint="What was done so far stays done; ask again.")

    def turn(
        self,
        message: str,
        *,
        conversation: str,
        turn: str,
        agent: str = "assistant",
        device: str | None = None,
        can_confirm: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Send a message, and yield each event of its turn; see `contracts.chat.messages.TurnEvent`.

        Args:
            conversation: Its id; one that is not known begins with this message.
            turn: Id for the new turn.
            device: Name of the device to act on when the message names none.
            can_confirm: Whether questions are shown to a person and answered.

        Raises:
            StrawberryError: As ``stream``.
        """
        headers = {"X-Strawberry-Conversation": conversation, "X-Strawberry-Turn": turn}
        if device:
            headers["X-Strawberry-Device"] = device
        if can_confirm:
            headers["X-Strawberry-Confirm"] = "true"
        body = {"model": agent, "stream": True, "messages": [{"role": "user", "content": message}]}
        for chunk in self.stream("/v1/chat/completions", body, headers):
            if (problem := ProblemDetails.read(chunk)) is not None:
                raise StrawberryError(problem.message, hint=problem.hint)
            event = chunk.get("x_strawberry")
            if event is not None:
                yield event
                continue
            for choice in chunk.get("choices", []):
                text = choice.get("delta", {}).get("content")
                if text:
                    yield {"kind": "text", "text": text}

    def events(
        self,
        path: str,
        headers: dict[str, str],
        kind: "type[T] | TypeAdapter[T]",
        *,
        silence_s: float = limits.SILENCE_S,
    ) -> Iterator[T]:
        """Yield each event of a server-sent stream that has no end mark, until it ends or is silent.

        Raises:
            StrawberryError: As ``get``.
        """
        return (self._read(kind, text) for text in self._data("GET", path, None, headers, timeout=silence_s))

    def _data(
        self, method: str, path: str, body: Any, headers: dict[str, str], *, timeout: float
    ) -> Iterator[str]:
        connection, response = self._send(method, path, body, headers=headers, timeout=timeout)
        # However a stream breaks off, it ends here.
        with closing(connection), suppress(OSError, http.client.HTTPException, ValueError):
            for line in response:
                text = line.decode("utf-8", "replace").strip()
                if text.startswith("data:"):
                    yield text.removeprefix("data:").strip()

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        headers: dict[str, str] | None = None,
        timeout: float = limits.ANSWER_TIMEOUT_S,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self._open(timeout)
        try:
            connection.sock.settimeout(timeout)
            connection.request(
                method,
                urlsplit(self.url).path + path,
                None if body is None else json.dumps(body).encode(),
                {
                    "Authorization": f"Bearer {self.token}",
                    "Content-Type": "application/json",
                    **(headers or {}),
                },
            )
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from None
        if response.status >= http.client.BAD_REQUEST:
            with closing(connection):
                raise _refusal(response.status, self._receive(response), self._token_from)
        return connection, response

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        """Connect, and have the server prove who it is before it is sent a token."""
        connection, challenge = self._connection(timeout), challenges.new_challenge()
        parts = urlsplit(self.url)
        path = f"{parts.path}{challenges.PATH}?challenge={challenge}"
        try:
            connection.connect()
            # A new connection would have to be proved again.
            connection.auto_open = 0
            connection.sock.settimeout(timeout)
            connection.request("GET", path, headers={"Host": parts.netloc})
            response = connection.getresponse()
            content = response.read(limits.MAX_PROOF_BYTES)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from None
        try:
            if response.status >= http.client.BAD_REQUEST:
                raise _refusal(response.status, content, self._token_from)
            self._check_proof(content, challenge=challenge, host=parts.netloc)
            if connection.sock is None:
                raise self._unreachable(http.client.RemoteDisconnected("closed"))
        except StrawberryError:
            connection.close()
            raise
        return connection

    def _check_proof(self, content: bytes, *, challenge: str, host: str) -> None:
        try:
            answer = json.loads(content)
        except ValueError:
            raise StrawberryError(f"{self._name} is not a Strawberry hub", hint=_NOT_A_HUB) from None
        if self.server == "spoke":
            proved = challenges.proves_spoke(answer, token=self.token, challenge=challenge, host=host)
        else:
            # The token names the key that signed it, and so the hub that it is for.
            key_id = str(self._of_token(0, "kid"))
            if not key_id:
                raise Unauthorized(
                    f"{self._token_from} is no token of a hub", hint="'strawberry tokens add' makes one."
                )
            proved = challenges.proves_hub(answer, key_id=key_id, challenge=challenge, host=host)
        if not proved:
            raise Unauthorized(
                f"{self._name} does not prove to be the one that the token is for; the token was not sent",
                hint=f"Is {self._token_from} a token of this hub, and does no other program listen there?",
            )

    def _of_token(self, part: int, name: str) -> Any:
        """Return a member of the header (0) or the claims (1) of the token; empty where there is none."""
        try:
            payload = self.token.split(".")[part]
            return json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))[name]
        except (LookupError, ValueError, TypeError):
            return ""

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host, at_most = parts.hostname or "", min(timeout, limits.CONNECT_TIMEOUT_S)
        if parts.scheme != "https":
            return http.client.HTTPConnection(host, parts.port, timeout=at_most)
        return http.client.HTTPSConnection(host, parts.port, timeout=at_most, context=self.trust())

    def trust(self) -> ssl.SSLContext:
        """Return which certificates are trusted."""
        context = ssl.create_default_context()
        if self._authorities:
            context.load_verify_locations(cadata=self._authorities)
        return context

    def _unreachable(self, error: OSError | http.client.HTTPException) -> StrawberryError:
        match error:
            case ssl.SSLCertVerificationError():
                return StrawberryError(
                    f"the certificate of {self._name} is not trusted here: {error.verify_message}",
                    hint="Join this machine ('strawberry spoke join'), or copy the hub's certs/ca.pem to "
                    "certs/ca.pem in the data directory here.",
                )
            case ssl.SSLError():
                return StrawberryError(
                    f"{self._name} does not answer with TLS there",
                    hint="Use the HTTPS port of the hub (8443 by default), or http:// if it has none.",
                )
            case http.client.HTTPException() if not isinstance(error, http.client.RemoteDisconnected):
                return StrawberryError(f"{self._name} is not a Strawberry hub", hint=_NOT_A_HUB)
            case http.client.RemoteDisconnected() | ConnectionResetError():
                return StrawberryError(
                    f"{self._name} closed the connection without an answer",
                    hint="Was it just stopped? With --lan a hub's other port wants https://.",
                )
            case TimeoutError():
                return StrawberryError(
                    f"{self._name} did not answer in time", hint="Is it busy? 'strawberry doctor' looks."
                )
            case socket.gaierror() if error.errno != socket.EAI_AGAIN:
                return StrawberryError(
                    f"there is no machine named {urlsplit(self.url).hostname!r} in this network",
                    hint="Check the address.",
                )
        return StrawberryError(
            f"{self._name} cannot be reached: {getattr(error, 'strerror', None) or error}",
            hint="Is it running? 'strawberry up' starts one.",
        )

    def _receive(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read()
        except (OSError, http.client.HTTPException):
            raise StrawberryError(f"{self._name} broke off its answer", hint="Try again.") from None


def _refusal(status: int, text: bytes, token_from: str) -> StrawberryError:
    try:
        problem = ProblemDetails.read(json.loads(text))
    except ValueError:
        problem = None
    if problem is None:
        return StrawberryError(f"the answer has status {status} and is not one of a hub", hint=_NOT_A_HUB)
    message, hint = problem.message, problem.hint
    if confirmation := problem.more.get("confirmation"):
        given = problem.more.get("arguments")
        arguments = given if isinstance(given, dict) else {}
        return NeedsConfirmation(message, hint=hint, confirmation=str(confirmation), arguments=arguments)
    kind = problem.kind(status) or StrawberryError
    if kind is Unauthorized:
        hint = hint or f"Is {token_from} a token of this hub? 'strawberry tokens add NAME' makes one."
    return kind(message, hint=hint)
