"""Calls from skills of this device to other skills of the home, through the hub."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from agent_core.skills.home import PresentCall
from agent_core.skills.results import to_json
from contracts.devices.rpc import MAX_TTL_MS
from contracts.errors import CallError, ErrorCode, HubRefused, HubUntrusted, StrawberryError
from contracts.wire import Json
from identity.keys import KeyPair
from spoke.membership.enrolment import Enrolment
from spoke.membership.refreshing import find_hub
from spoke.membership.trust import Hub

_PATH: Final = "/api/skills/call/within"


class HubCalls:
    """Calls once it was connected; see ``agent_core.skills.home.HomeCaller``."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._known: Callable[[], Enrolment] | None = None
        self._key: KeyPair | None = None
        self._met: Hub | None = None
        self._meeting = asyncio.Lock()

    def connect(self, known: Callable[[], Enrolment], key: KeyPair) -> None:
        """Call from now on.

        Args:
            known: Returns what is known of the hub now.
            key: This device's key.
        """
        # Skills are loaded ahead in another loop than that in which the spoke runs.
        self._loop = asyncio.get_running_loop()
        self._known, self._key = known, key

    def close(self) -> None:
        """Close the connection that is kept."""
        if self._met is not None:
            self._met.http.drop()
            self._met = None

    def __call__(
        self,
        skill: str,
        within: PresentCall,
        path: Sequence[str],
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> Future[Json]:
        names = dict(zip(("device", "skill", "method"), path, strict=True))
        inside = {"caller": skill, "within": within.id, "during": within.method}
        body = {**inside, **names, "args": list(args), "kwargs": dict(kwargs)}
        return asyncio.run_coroutine_threadsafe(self._send(to_json(body)), self._loop)

    async def _send(self, body: Json) -> Json:
        if self._known is None or self._key is None:
            raise CallError(ErrorCode.OFFLINE, "the hub is not known yet", hint="Call it after the set-up.")
        known = self._known()
        try:
            async with self._meeting:
                if self._met is None or self._met.http.url != known.hub_url:
                    self.close()
                    self._met = await find_hub(known, key=self._key)
                    self._met.http.keep()
                hub = self._met.http
        except StrawberryError as error:
            self.close()
            raise CallError(ErrorCode.OFFLINE, error.message, hint=error.hint) from None
        try:
            longest = MAX_TTL_MS / 1000
            answer = await hub.request("POST", _PATH, body, bearer=known.token, timeout_s=longest)
        except StrawberryError as error:
            self.close()
            if isinstance(error, HubRefused | HubUntrusted):
                raise CallError(ErrorCode.OFFLINE, error.message, hint=error.hint) from None
            # Who takes it for offline would call again what has run.
            message = "the call may have run: {reason}"
            raise CallError(ErrorCode.OUTCOME_UNKNOWN, message, reason=error.message) from None
        if answer.status == 200 and isinstance(answer.body, dict):
            return answer.body.get("result")
        problem = answer.problem
        code = problem.code if problem.code in list(ErrorCode) else ErrorCode.SKILL_ERROR
        message = problem.message or f"the hub answered {answer.status}"
        raise CallError(ErrorCode(code), message, hint=problem.hint)
