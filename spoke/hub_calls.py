"""Calls from skills of this device to other skills of the home, through the hub."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from agent_core.skills.results import to_json
from contracts.devices.rpc import MAX_TTL_MS
from contracts.errors import CallError, ErrorCode, StrawberryError
from contracts.wire import Json
from identity.keys import KeyPair
from spoke.membership.enrolment import Enrolment
from spoke.membership.refreshing import find_hub
from spoke.membership.trust import Hub

_PATH: Final = "/api/skills/call/within"


class HubCalls:
    """See ``agent_core.skills.home.HomeCaller``; it calls once it was connected."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._enrolment: Callable[[], Enrolment] | None = None
        self._key: KeyPair | None = None
        self._met: Hub | None = None

    def connect(self, enrolment: Callable[[], Enrolment], key: KeyPair) -> None:
        """Call from now on.

        Args:
            enrolment: Returns what is known of the hub now.
            key: This device's key.
        """
        self._enrolment, self._key = enrolment, key

    def close(self) -> None:
        """Close the connection that is kept."""
        if self._met is not None:
            self._met.http.drop()
            self._met = None

    async def call(
        self,
        skill: str,
        within: str | None,
        path: Sequence[str],
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> Json:
        """See ``HomeCaller``."""
        if self._enrolment is None or self._key is None:
            raise CallError(ErrorCode.OFFLINE, "the hub is not known yet", hint="Call it after the set-up.")
        device, called, method = path
        body = to_json(
            {
                "caller": skill,
                "within": within,
                "device": device,
                "skill": called,
                "method": method,
                "args": list(args),
                "kwargs": dict(kwargs),
            }
        )
        enrolment = self._enrolment()
        try:
            if self._met is None or self._met.http.url != enrolment.hub_url:
                self.close()
                self._met = await find_hub(enrolment, key=self._key)
                self._met.http.keep()
            answer = await self._met.http.request(
                "POST", _PATH, body, bearer=enrolment.token, timeout_s=MAX_TTL_MS / 1000
            )
        except StrawberryError as error:
            self.close()
            raise CallError(ErrorCode.OFFLINE, error.message, hint=error.hint) from None
        if answer.status == 200 and isinstance(answer.body, dict):
            return answer.body.get("result")
        problem = answer.problem
        code = problem.code if problem.code in list(ErrorCode) else ErrorCode.SKILL_ERROR
        message = problem.message or f"the hub answered {answer.status}"
        raise CallError(ErrorCode(code), message, hint=problem.hint, device=device)
