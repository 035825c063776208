"""Which hub answers at an address: known by its key before anything secret is sent there."""

import base64
import binascii
import logging
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from contracts.errors import ConfigError, InvalidMessage
from contracts.joining import HubCard, ca_document
from identity.keys import PublicKey
from spoke.membership.hub_http import HubAnswer, HubHttp, HubUnreachable

_LOG = logging.getLogger(__name__)

WELL_KNOWN: Final = "/.well-known/strawberry"

TRY_LATER: Final = (429, 500, 502, 503, 504)
"""HTTP statuses of a hub that is there and cannot answer now."""

_WHICH_KEY: Final = "Somebody may be in between, or it is another hub: see what 'devices add' prints there."


@dataclass(frozen=True)
class Hub:
    """A hub that may be spoken to.

    Attributes:
        card: What it says of itself; ``key`` is the fingerprint that was expected, if one was.
        ca: PEM of its certificate authority, signed by its key; None where it has none.
        http: Over a connection that is checked against that authority, or against the system's.
    """

    card: HubCard
    ca: str | None
    http: HubHttp


async def meet(
    url: str,
    *,
    hub_key: str | None,
    insecure: bool = False,
    compared: bool = False,
    timeout_s: float = 10.0,
) -> Hub:
    """Find out which hub answers, and how its connections are checked from here on.

    With ``https`` and a key that is known, or compared by a person before anything is trusted, the hub
    vouches for its certificate authority by that key. Otherwise the system's authorities must know it.

    Args:
        hub_key: Fingerprint that the hub's key must have; None takes any.
        insecure: Whether plain ``http`` to another machine was asked for.
        compared: Whether a person compares the fingerprint of all this with the hub's.

    Raises:
        ConfigError: If the address is none, cannot be used safely, or the hub's key is another one.
        HubUnreachable: If no hub answers now. `HubUntrusted` if its certificate does not hold.
        InvalidMessage: If what answers is no hub.
    """
    is_by_key = hub_key is not None or compared
    check_address(url, insecure=insecure)
    asking = HubHttp(url, verify=not is_by_key)
    card = _card(asking.url, await asking.get(WELL_KNOWN, timeout_s=timeout_s))
    if hub_key is not None:
        check_fingerprint(hub_key, card.key, url=asking.url, hint=_WHICH_KEY)
    ca = _vouched(card, url=asking.url)
    return Hub(card, ca, HubHttp(url, ca=ca if is_by_key else None))


def check_address(url: str, *, insecure: bool) -> None:
    """See that nobody could read on the way what is sent to a hub, unless that was asked for.

    Raises:
        ConfigError: If somebody could, or the address is none.
    """
    if HubHttp(url).is_readable and not insecure:
        raise ConfigError(
            f"{url} is without TLS: this device's token could be read in the network",
            hint="Use the hub's https address ('--lan' opens it), or add --insecure if you accept that.",
        )


def check_fingerprint(expected: str, found: str, *, url: str, hint: str) -> None:
    """Compare two fingerprints of a hub's key.

    Raises:
        ConfigError: If they differ; names both.
    """
    if expected.strip() != found:
        raise ConfigError(f"the key of the hub {url} is {found}, not {expected.strip()}", hint=hint)


def no_hub(url: str, answer: HubAnswer) -> HubUnreachable | InvalidMessage:
    """Make the error for an answer that is not the expected one of a hub."""
    message, hint = answer.error
    if answer.status in TRY_LATER:
        return HubUnreachable(message or f"the hub at {url} answered {answer.status}", hint=hint)
    told = f": {message}" if message else ""
    return InvalidMessage(f"{url} answered {answer.status} and is no hub{told}", hint="Check the address.")


def _card(url: str, answer: HubAnswer) -> HubCard:
    if answer.status != 200:
        raise no_hub(url, answer)
    try:
        card = HubCard.model_validate(answer.body)
    except ValidationError:
        raise InvalidMessage(f"{url} does not answer as a hub does", hint="Check the address.") from None
    if card.hub_key and PublicKey.from_jwk(card.hub_key).kid != card.key:
        raise InvalidMessage(f"the hub {url} shows a key and the fingerprint of another", hint=_WHICH_KEY)
    return card


def _vouched(card: HubCard, *, url: str) -> str | None:
    """Give the certificate authority of a card, once the hub's key vouches for it."""
    if card.ca is None:
        return None
    signature = _decoded(card.ca_signature or "")
    document = ca_document(hub_id=card.hub_id, ca=card.ca)
    if not card.hub_key or not PublicKey.from_jwk(card.hub_key).verify(signature, document):
        raise ConfigError(
            f"the certificate authority that {url} names is not signed by the hub's key", hint=_WHICH_KEY
        )
    return card.ca


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
