"""Verification of a hub: its key is checked before anything secret is sent to it."""

import base64
import binascii
import logging
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from contracts.devices.joining import HubCard, ca_document
from contracts.errors import ConfigError, InvalidMessage
from identity.keys import KeyPair, PublicKey
from identity.logins.challenges import PATH as WELL_KNOWN
from spoke.membership.hub_http import HubAnswer, HubHttp

_log = logging.getLogger(__name__)

_WHICH_KEY: Final = (
    "The connection may be intercepted, or this is another hub: compare with what 'strawberry devices add' "
    "prints on the hub."
)


@dataclass(frozen=True)
class Hub:
    """A verified hub.

    Attributes:
        card: Its answer to ``/.well-known/strawberry``; ``key`` is the expected fingerprint, if one was.
        ca: PEM of its certificate authority, signed by its key; None if it has none.
        http: Client whose connections are checked against that authority, or against the system's.
    """

    card: HubCard
    ca: str | None
    http: HubHttp


async def meet(
    url: str,
    *,
    hub_key: str | None,
    key: KeyPair,
    insecure: bool = False,
    compared: bool = False,
    timeout_s: float = 10.0,
) -> Hub:
    """Fetch the hub's card and verify it.

    If the hub's key is known, or a person compares its fingerprint before anything is trusted, that key
    vouches for the hub's certificate authority. Otherwise the system's authorities must know it.

    Args:
        hub_key: Fingerprint that the hub's key must have; None accepts any.
        key: This device's key.
        insecure: Whether plain ``http`` to another machine is allowed.
        compared: Whether a person compares the fingerprint with the one that the hub shows.

    Raises:
        ConfigError: If the address is invalid or not safe to use, or the hub has another key.
        HubUnreachable: If no hub answers now. `HubUntrusted` if its certificate is not valid.
        InvalidMessage: If the server is not a hub.
    """
    is_by_key = hub_key is not None or compared
    check_address(url, insecure=insecure)
    asking = HubHttp(url, verify=not is_by_key)
    card = _card(asking.url, await asking.request("GET", WELL_KNOWN, timeout_s=timeout_s))
    if hub_key is not None:
        check_fingerprint(hub_key, card.key, url=asking.url, hint=_WHICH_KEY)
    ca = _vouched(card, url=asking.url)
    return Hub(card, ca, HubHttp(url, ca=ca if is_by_key else None, hub_key=card.key, key=key))


def check_address(url: str, *, insecure: bool) -> None:
    """Check that the connection to a hub is encrypted or local, unless ``insecure``.

    Raises:
        ConfigError: If it is not, or the address is invalid.
    """
    if HubHttp(url).is_readable and not insecure:
        raise ConfigError(
            f"{url} is not encrypted: others on the network could read this device's token",
            hint="Use the hub's https address ('--lan' opens it), or add --insecure to allow it.",
        )


def check_fingerprint(expected: str, found: str, *, url: str, hint: str) -> None:
    """Compare two fingerprints of a hub's key.

    Raises:
        ConfigError: If they differ; names both.
    """
    if expected.strip() != found:
        raise ConfigError(f"the key of the hub {url} is {found}, not {expected.strip()}", hint=hint)


def _card(url: str, answer: HubAnswer) -> HubCard:
    if answer.status != 200:
        raise answer.no_hub()
    try:
        card = HubCard.model_validate(answer.body)
    except ValidationError:
        raise InvalidMessage(f"{url} is not a Strawberry hub", hint="Check the address.") from None
    if PublicKey.from_jwk(card.hub_key).kid != card.key:
        raise InvalidMessage(
            f"the key that the hub {url} sent does not match its fingerprint", hint=_WHICH_KEY
        )
    return card


def _vouched(card: HubCard, *, url: str) -> str | None:
    """Return the certificate authority of a card after checking the hub's signature of it."""
    if card.ca is None:
        return None
    signature = _decoded(card.ca_signature or "")
    document = ca_document(hub_id=card.hub_id, ca=card.ca)
    if not PublicKey.from_jwk(card.hub_key).verify(signature, document):
        raise ConfigError(
            f"the certificate authority of {url} is not signed by the hub's key", hint=_WHICH_KEY
        )
    return card.ca


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
