"""Confirmation tokens: a person approves one direct call with its real arguments.

A program that calls a skill directly is given a token, asks its person, and sends the token with the same
call. It works once, for one user, one device, one method and one hash of the arguments. Turns ask their
person themselves; see ``chat.questions``.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from contracts.chat.messages import CallToConfirm
from contracts.errors import CallError, Conflict
from hub_agent import limits


@dataclass(frozen=True)
class Act:
    """What exactly is confirmed.

    Attributes:
        device: Id of the device, or ``hub``.
        method: ``Skill.method``.
        arguments: Hash of the arguments.
    """

    user: str
    device: str
    method: str
    arguments: str


class ConfirmationNeeded(CallError):
    """A person must confirm a call before it is made.

    Attributes:
        call: What the person is shown.
        confirmation: The token with which the same call is made.
    """

    def __init__(self, error: CallError, *, call: CallToConfirm, confirmation: str) -> None:
        hint = "Ask the person, then send the same call again with this confirmation."
        super().__init__(error.code, error.message, hint=hint)
        self.call = call
        self.confirmation = confirmation

    @property
    def members(self) -> Mapping[str, Any]:
        return {"confirmation": self.confirmation, **vars(self.call)}


class ConfirmationTokens:
    """Single-use permissions for direct calls.

    Args:
        issuer: Name of this process, which distinguishes the tokens of several.
    """

    def __init__(
        self, *, expires_s: float, issuer: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._prefix = f"{issuer}." if issuer else ""
        self._expires_s = expires_s
        self._clock = clock
        self._issued: OrderedDict[str, tuple[Act, float]] = OrderedDict()

    def issue(self, act: Act) -> str:
        """Make a token for exactly this act."""
        token = self._prefix + secrets.token_urlsafe(16)
        self._issued[token] = (act, self._clock() + self._expires_s)
        if len(self._issued) > limits.CONFIRMATIONS_REMEMBERED:
            self._issued.popitem(last=False)
        return token

    def redeem(self, token: str, act: Act) -> None:
        """Use up a token.

        Raises:
            Conflict: If it is unknown, used, expired, or was given for anything else.
        """
        issued, expires = self._issued.get(token, (None, 0.0))
        # A token that is tried for something else stays good for its own act.
        if issued != act:
            raise Conflict(
                "this confirmation is for another call", hint="Send the call without it to be asked again."
            )
        del self._issued[token]
        if self._clock() >= expires:
            raise Conflict(
                "this confirmation has expired", hint="Send the call without it to be asked again."
            )
