"""A stand-in for the hub's HTTP side, over real HTTP or HTTPS, whose answers can be delayed and lost."""

import base64
import json
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from contracts.claims import Claims
from contracts.devices.joining import (
    BusAccess,
    DeviceProfile,
    DeviceTokens,
    EnrolAnswer,
    HubCard,
    JoinAsked,
    JoinState,
    Login,
    ca_document,
    join_fingerprint,
)
from contracts.errors import StaleProof, Unauthorized
from contracts.wire import Json
from identity import tokens
from identity.keys import KeyPair, PublicKey
from identity.logins.challenges import hub_document
from identity.logins.proofs import ProofCheck
from tests.ports import free_port

HUB = "home-1"
DEVICE = "garage_pc"

CARD = "/.well-known/strawberry"
ENROL = "/api/devices/enrol"
BUS = "/api/bus"
RENEW = "/api/tokens/renew"
JOIN = "/api/devices/join"
POLL = "/api/devices/join/poll"


@dataclass
class Joining:
    """A device that waits to be let in by code."""

    code: str
    name: str
    key: PublicKey
    state: str = "waiting"


@dataclass
class Fault:
    """What goes wrong with requests to one path.

    Attributes:
        lose: How many answers never come, although the hub has acted.
        ignore: How many requests the hub never sees.
    """

    lose: int = 0
    ignore: int = 0


@dataclass
class StandInHub:
    """The HTTP side of a hub: lets devices in, and says who it is.

    Attributes:
        ca: PEM of its certificate authority; ``tls`` is what it serves with.
        invitations: Device by enrolment token; one that was used is gone.
        waiting: Those that asked to be let in by code, by the secret they poll with.
        revoked: Ids of the tokens that it takes no more.
        seen_tokens: Every bearer that came.
        clock_ahead_s: What is wrong with this machine's clock, seen from the hub.
        outages: How many requests are answered with 503 before one is served.
        rushed: How many are answered with 429.
    """

    brokers: list[str]
    key: KeyPair = field(default_factory=KeyPair.generate)
    prefix: str = ""
    qos: Literal[0, 1] = 1
    login: Login | None = None
    ca: str | None = None
    tls: ssl.SSLContext | None = None
    invitations: dict[str, str] = field(default_factory=dict)
    device_keys: dict[str, PublicKey] = field(default_factory=dict)
    waiting: dict[str, Joining] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    seen_tokens: list[str] = field(default_factory=list)
    faults: dict[str, Fault] = field(default_factory=dict)
    lifetime_s: int = 100_000
    code_s: int = 600
    clock_ahead_s: float = 0.0
    outages: int = 0
    rushed: int = 0
    port: int = 0
    proofs: ProofCheck | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    @property
    def now(self) -> float:
        return time.time() + self.clock_ahead_s

    @property
    def bus(self) -> BusAccess:
        return BusAccess(
            brokers=tuple(self.brokers),
            prefix=self.prefix,
            authentication="login" if self.login else "proof",
            login=self.login,
            ca=self.ca,
            qos=self.qos,
        )

    def invite(self, device: str = DEVICE) -> SecretStr:
        token = uuid.uuid4().hex
        self.invitations[token] = device
        return SecretStr(token)

    def tokens(self, device: str, key: PublicKey) -> DeviceTokens:
        token = self.token(device, key)
        return DeviceTokens(token=token, bus_token=self.bus_token(token))

    def bus_token(self, token: str) -> str:
        claims = tokens.verify(token, key=self.key.public, hub_id=HUB, audience="http", now=0)
        return tokens.issue(self.key, claims.model_copy(update={"aud": "mqtt"}))

    def token(self, device: str, key: PublicKey | None = None, *, age_s: float = 0, **claims: Any) -> str:
        made: dict[str, Any] = {"kind": "device", "owner": "anna", "lifetime_s": self.lifetime_s}
        made["audience"] = "mqtt" if claims.get("kind") == "hub" else "http"
        made |= {"hub_id": HUB, "subject": device, "scopes": ("register", "chat"), "key": key} | claims
        return tokens.issue(self.key, tokens.make_claims(**(made | {"now": self.now - age_s})))

    def revoke(self, token: SecretStr) -> None:
        self.revoked.add(tokens.token_id(token.get_secret_value()))

    def joining(self, code: str) -> Joining:
        """Who shows this code."""
        return next(one for one in self.waiting.values() if one.code == code)

    def fingerprint(self, code: str) -> str:
        """What stands beside the code where it is approved."""
        return join_fingerprint(hub_key=self.key.kid, device_key=self.joining(code).key.kid, ca=self.ca)

    def fault(self, path: str) -> Fault:
        return self.faults.setdefault(path, Fault())

    def answer(self, path: str, body: dict[str, Any], bearer: str = "") -> tuple[int, Json]:
        """Act on a request; give status and body."""
        routes: dict[str, Callable[[], Any]] = {
            CARD: lambda: self._card(),
            ENROL: lambda: self._enrol(body),
            BUS: lambda: self._bus(bearer),
            JOIN: lambda: self._join(body),
            POLL: lambda: self._poll(body),
        }
        try:
            answered = routes[path]()
        except KeyError:
            return 404, {"code": "not_found", "detail": "there is nothing here"}
        except Unauthorized as error:
            return 401, {"code": "unauthorized", "detail": error.message, "hint": error.hint}
        return 200, answered.model_dump(mode="json") if hasattr(answered, "model_dump") else answered

    def challenged(self, query: str, host: str) -> dict[str, Any]:
        """The card with the proof that this hub answers."""
        challenge = query.removeprefix("challenge=")
        signed = self.key.sign(hub_document(hub_id=HUB, challenge=challenge, host=host))
        proof = base64.urlsafe_b64encode(signed).rstrip(b"=").decode()
        return self._card().model_dump(mode="json") | {"proof": proof}

    def require_proof(self, method: str, path: str, bearer: str, proof: str) -> None:
        """Check the proof of a device that shows a token."""
        claims = tokens.verify(bearer, key=self.key.public, hub_id=HUB, audience="http", now=0)
        self.proofs = self.proofs or ProofCheck(clock=lambda: self.now)
        if claims.cnf is not None:
            is_target = lambda url: urlsplit(url).path == path  # noqa: E731
            self.proofs.check(proof, method=method, is_target=is_target, token=bearer, key_id=claims.cnf.jkt)

    def _card(self) -> HubCard:
        document = ca_document(hub_id=HUB, ca=self.ca or "")
        signature = base64.urlsafe_b64encode(self.key.sign(document)).rstrip(b"=").decode()
        return HubCard(
            hub_id=HUB,
            key=self.key.kid,
            hub_key=self.key.public.jwk(),
            brokers=tuple(self.brokers),
            prefix=self.prefix,
            ca=self.ca,
            ca_signature=signature if self.ca else None,
        )

    def _bus(self, bearer: str) -> BusAccess:
        self.authenticate(bearer)
        return self.bus

    def _enrol(self, body: dict[str, Any]) -> EnrolAnswer:
        device = self.invitations.pop(body["token"], None)
        if device is None:
            raise Unauthorized(
                "the enrolment token was used already",
                hint="Make a new one with 'strawberry devices add NAME'.",
            )
        return self._enrolled(device, PublicKey.from_jwk(body["public_key"]))

    def _enrolled(self, device: str, key: PublicKey) -> EnrolAnswer:
        self.device_keys[device] = key
        return EnrolAnswer(
            device=device,
            profile=DeviceProfile(name=device, key=device),
            **self.tokens(device, key).model_dump(),
            hub_id=HUB,
            hub_key=self.key.public.jwk(),
            **self.bus.model_dump(),
        )

    def authenticate(self, bearer: str) -> Claims:
        """Check a token."""
        self.seen_tokens.append(bearer)
        return tokens.verify(
            bearer,
            key=self.key.public,
            hub_id=HUB,
            audience="http",
            is_revoked=lambda claims: claims.jti in self.revoked,
            now=self.now,
        )

    def _join(self, body: dict[str, Any]) -> JoinAsked:
        code, secret = uuid.uuid4().hex[:6].upper(), uuid.uuid4().hex
        self.waiting[secret] = Joining(code, body["name"], PublicKey.from_jwk(body["public_key"]))
        return JoinAsked(code=code, secret=secret, expires_in_s=self.code_s, interval_s=0.05)

    def _poll(self, body: dict[str, Any]) -> JoinState:
        one = self.waiting.get(body["secret"])
        if one is None:
            raise Unauthorized("there is no such code")
        enrolment = self._enrolled(DEVICE, one.key) if one.state == "approved" else None
        return JoinState.model_validate({"state": one.state, "enrolment": enrolment})


@contextmanager
def serving(hub: StandInHub, *, port: int = 0) -> Iterator[StandInHub]:
    """Serve the stand-in over HTTP, on the given port, or on one that stays free when this ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._respond({})

        def do_POST(self) -> None:
            self._respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _respond(self, body: dict[str, Any]) -> None:
            path, _, query = self.path.partition("?")
            hub.requests.append(path)
            fault = hub.fault(path)
            self.close_connection = self.close_connection or bool(fault.ignore or fault.lose)
            if fault.ignore:
                fault.ignore -= 1
                return
            if query:
                status, answer = 200, hub.challenged(query, self.headers["Host"])
            else:
                status, answer = self._answer(body)
            if fault.lose:
                fault.lose -= 1
                return
            content = json.dumps(answer).encode()
            self.send_response_only(status)
            self.send_header("Date", formatdate(hub.now, usegmt=True))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _answer(self, body: dict[str, Any]) -> tuple[int, Json]:
            if hub.outages:
                hub.outages -= 1
                return 503, None
            if hub.rushed:
                hub.rushed -= 1
                return 429, {"code": "too_many_requests", "detail": "too often"}
            bearer = self.headers.get("Authorization", "").removeprefix("DPoP ")
            if bearer:
                try:
                    hub.require_proof(self.command, self.path, bearer, self.headers["DPoP"])
                except Unauthorized as error:
                    code = "stale_proof" if isinstance(error, StaleProof) else "unauthorized"
                    return 401, {"code": code, "detail": error.message}
            return hub.answer(self.path, body, bearer)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def get_request(self) -> Any:
            connection, address = super().get_request()
            if hub.tls is None:
                return connection, address
            # The handshake waits for the handler's thread, so that a client that hangs holds nobody up.
            wrapped = hub.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            return wrapped, address

        def handle_error(self, *_: Any) -> None:
            """A client that does not like the certificate hangs up; that is its right."""

    with Server(("127.0.0.1", port or free_port()), Handler) as server:
        hub.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
