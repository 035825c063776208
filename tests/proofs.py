"""How devices show their tokens to a hub and its broker: together with a proof of their key."""

import json
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import jwt
from pydantic import SecretStr

from contracts.claims import SCOPES
from identity.keys import KeyPair
from identity.logins.challenges import PATH, hub_document, spoke_proof
from identity.logins.proofs import login_password, make_proof
from identity.tokens import issue, make_claims


class Authorization(httpx.Auth):
    """Sends a token: a device's with a proof by its key, any other as it is.

    Args:
        token: None for the proof alone, as a device sends it to join.
        keys: Of devices, by their thumbprint.
    """

    def __init__(self, token: str | None, keys: Mapping[str, KeyPair]) -> None:
        self._token = token
        self._key = keys.get(_key_id(token)) if token is not None else next(iter(keys.values()))

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Add the headers."""
        if self._key is not None:
            target = str(request.url.copy_with(query=None))
            request.headers["dpop"] = make_proof(
                self._key, method=request.method, target=target, token=self._token, now=time.time()
            )
        if self._token is not None:
            request.headers["authorization"] = f"{'DPoP' if self._key else 'Bearer'} {self._token}"
        yield request


def proof_of(key: KeyPair) -> Authorization:
    """Return what a device sends that joins with this key."""
    return Authorization(None, {key.kid: key})


def bus_password(hub_id: str, device: str, key: KeyPair, token: str) -> Callable[[], SecretStr]:
    """Return what makes the password for each login of a device on the embedded broker."""
    return lambda: SecretStr(
        login_password(key, token=token, hub_id=hub_id, client_id=device, now=time.time())
    )


def _key_id(token: str) -> str:
    try:
        return str(jwt.decode(token, options={"verify_signature": False})["cnf"]["jkt"])
    except (jwt.PyJWTError, KeyError):
        return ""


class ProvingHandler(BaseHTTPRequestHandler):
    """A stand-in for a hub or a spoke that proves who it is; each other request has a connection's end.

    Attributes:
        hub_key: Of the hub.
        owner_token: Of the spoke that it stands for instead, if it does.
    """

    protocol_version = "HTTP/1.1"
    hub_key = KeyPair.generate()
    owner_token: str | None = None

    @classmethod
    def token(cls, *, by: KeyPair | None = None) -> str:
        """A token of this hub, or of the one with another key."""
        claims = make_claims(
            hub_id="hub-1", subject="admin", kind="user", owner="admin", scopes=SCOPES, lifetime_s=600
        )
        return issue(by or cls.hub_key, claims)

    def parse_request(self) -> bool:
        """Answer a challenge; leave any other request to the methods."""
        if not super().parse_request():
            return False
        path, _, challenge = self.path.partition("?challenge=")
        if path != PATH or not challenge:
            self.close_connection = True
            return True
        host = self.headers["host"]
        signed = self.hub_key.sign(hub_document(hub_id="hub-1", challenge=challenge, host=host))
        proof = urlsafe_b64encode(signed).rstrip(b"=").decode()
        if self.owner_token is not None:
            proof = spoke_proof(self.owner_token, challenge=challenge, host=host)
        card = {"hub_id": "hub-1", "hub_key": self.hub_key.public.jwk(), "proof": proof}
        self.reply(card)
        return False

    def reply(self, answer: Any, *, status: int = 200) -> None:
        """Send an answer as JSON, or bytes as they are."""
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def body(self) -> Any:
        """The JSON that was sent."""
        return json.loads(self.rfile.read(int(self.headers["content-length"])))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(handler: type[ProvingHandler]) -> Iterator[str]:
    """Serve with a handler; yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
