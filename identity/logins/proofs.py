"""Proofs of possession: a device's token counts only together with the device's key (after RFC 9449).

A proof is a JWT of the type ``dpop+jwt``, signed with the device's key, which its header holds as
``jwk``. It names what it is for (``htm``, ``htu``, and ``ath``, the SHA-256 of the token) and is good once,
for a minute.
"""

import base64
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Final

import jwt
from pydantic import Field, ValidationError

from contracts.errors import InvalidMessage, StaleProof, Unauthorized
from contracts.wire import Part
from identity.keys import KeyPair, PublicKey
from identity.limits import BEFORE_START_S, LONGEST_PROOF, PROOFS_REMEMBERED

_ALGORITHM: Final = "EdDSA"
_TYPE: Final = "dpop+jwt"
_LOGIN: Final = "CONNECT"
WINDOW_S: Final = 60
"""How far the time in a proof may be off: more than a slow network and HTTP's whole seconds account for."""


class _Claims(Part):
    htm: str
    htu: str
    iat: Annotated[float, Field(allow_inf_nan=False)]
    jti: Annotated[str, Field(min_length=8, max_length=64)]
    ath: str | None = None


def make_proof(key: KeyPair, *, method: str, target: str, token: str | None, now: float) -> str:
    """Return a proof that is good for one request or login.

    Args:
        method: HTTP method.
        target: URL of the request without query.
        token: The token that goes with it; None where there is none yet.
        now: Seconds since the epoch by the hub's clock.
    """
    claims: dict[str, Any] = {"htm": method, "htu": target, "iat": int(now), "jti": secrets.token_urlsafe(12)}
    if token is not None:
        claims["ath"] = _hash(token)
    jwk = {name: value for name, value in key.public.jwk().items() if name != "kid"}
    return jwt.encode(claims, key.for_tokens, algorithm=_ALGORITHM, headers={"typ": _TYPE, "jwk": jwk})


def login_password(key: KeyPair, *, token: str, hub_id: str, client_id: str, now: float) -> str:
    """Return the password for one login on a broker that checks proofs: the token, ``~`` and a proof."""
    target = _login_target(hub_id, client_id)
    return f"{token}~{make_proof(key, method=_LOGIN, target=target, token=token, now=now)}"


def _login_target(hub_id: str, client_id: str) -> str:
    return f"mqtt://{hub_id}/{client_id}"


class ProofCheck:
    """Checks proofs, and remembers those of the last two minutes so that none is good twice.

    Args:
        clock: Seconds since the epoch.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._started = time.monotonic()
        self._used: dict[tuple[str, str], float] = {}
        self._counts = Counter[str]()

    def possessed(self, proof: str, *, method: str, is_target: Callable[[str], bool]) -> PublicKey:
        """Return the key that a proof shows, for one who has no token yet.

        Raises:
            Unauthorized: With the reason. `StaleProof` if its time is not now.
        """
        key, claims = self._checked(proof, method=method, is_target=is_target)
        self._use(key.kid, claims.jti)
        return key

    def check(
        self, proof: str, *, method: str, is_target: Callable[[str], bool], token: str, key_id: str
    ) -> None:
        """Check the proof that goes with a token.

        Args:
            is_target: Whether ``htu`` names what was asked for.
            key_id: Thumbprint of the key that the token names.

        Raises:
            Unauthorized: With the reason. `StaleProof` if its time is not now.
        """
        key, claims = self._checked(proof, method=method, is_target=is_target)
        if key.kid != key_id:
            raise Unauthorized("the proof is by another key than the one the token is for")
        if claims.ath != _hash(token):
            raise Unauthorized("the proof is for another token")
        self._use(key_id, claims.jti)

    def check_login(self, proof: str, *, hub_id: str, client_id: str, token: str, key_id: str) -> None:
        """Check the proof that goes with the token of a login on the bus; see `check`."""
        target = _login_target(hub_id, client_id)
        self.check(proof, method=_LOGIN, is_target=target.__eq__, token=token, key_id=key_id)

    def _checked(
        self, proof: str, *, method: str, is_target: Callable[[str], bool]
    ) -> tuple[PublicKey, _Claims]:
        key, claims = _read(proof)
        if claims.htm != method or not is_target(claims.htu):
            # Not in the message: the sender chose it, and each refusal would be another one in the log.
            raise Unauthorized(
                "the proof is for another request",
                hint=f"It is for {claims.htm[:16]!r} {claims.htu[:100]!r}. "
                "Behind a proxy, base_path must be the path that the proxy adds.",
            )
        # Not by the time of the start, or a clock that is set back later would keep every device out.
        since_start = time.monotonic() - self._started + BEFORE_START_S
        if not -WINDOW_S <= self._clock() - claims.iat <= min(WINDOW_S, since_start):
            raise StaleProof("the time of the proof is not now", hint="Take the time from 'Date'; try again.")
        return key, claims

    def _use(self, key_id: str, jti: str) -> None:
        now, used = self._clock(), self._used
        # The oldest come first. One whose time is a window ahead is good for two of them.
        while used and used[oldest := next(iter(used))] < now - 2 * WINDOW_S:
            del used[oldest]
            self._counts[oldest[0]] -= 1
            if not self._counts[oldest[0]]:
                del self._counts[oldest[0]]
        if (key_id, jti) in used:
            raise Unauthorized("the proof was used before")
        if self._counts[key_id] >= PROOFS_REMEMBERED:
            raise Unauthorized("too many proofs of this key", hint="Wait a minute and try again.")
        used[key_id, jti] = now
        self._counts[key_id] += 1


def _read(proof: str) -> tuple[PublicKey, _Claims]:
    refusal = Unauthorized("the proof is malformed or not signed by its key")
    try:
        header = jwt.get_unverified_header(proof) if len(proof) <= LONGEST_PROOF else {}
        jwk = header.get("jwk")
        if header.get("typ") != _TYPE or not isinstance(jwk, dict):
            raise refusal
        key = _key(jwk.get("kty"), jwk.get("crv"), jwk.get("x"))
        payload = jwt.decode(
            proof,
            key.for_tokens,
            algorithms=[_ALGORITHM],
            # The time is checked against a clock that can be given, and there is no audience.
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False},
        )
        return key, _Claims.model_validate(payload)
    except (jwt.PyJWTError, InvalidMessage, ValidationError, ValueError, TypeError):
        raise refusal from None


@lru_cache(maxsize=1_000)
def _key(kty: str, crv: str, x: str) -> PublicKey:
    # Cached: checking the point takes longer than checking a signature.
    return PublicKey.from_jwk({"kty": kty, "crv": crv, "x": x})


def _hash(token: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()
