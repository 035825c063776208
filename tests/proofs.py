"""How devices show their tokens to a hub and its broker: together with a proof of their key."""

import time
from collections.abc import Callable, Generator, Mapping

import httpx
import jwt
from pydantic import SecretStr

from identity.keys import KeyPair
from identity.proofs import login_password, make_proof


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
