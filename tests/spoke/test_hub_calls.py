"""Calls of skills to other devices, where the hub does not answer."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from agent_core.skills.home import NO_CALL
from contracts.errors import CallError, ErrorCode, HubBroken, HubRefused, HubUnreachable
from spoke import hub_calls


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HubBroken("the hub closed the connection"), ErrorCode.OUTCOME_UNKNOWN),
        (HubUnreachable("no answer within 900 s"), ErrorCode.OUTCOME_UNKNOWN),
        (HubRefused("connection refused"), ErrorCode.OFFLINE),
    ],
)
async def test_a_call_that_may_have_run_is_not_called_offline(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: ErrorCode
) -> None:
    async def request(*_: Any, **__: Any) -> None:
        raise error

    async def find_hub(*_: Any, **__: Any) -> Any:
        http = SimpleNamespace(url="http://hub", keep=lambda: None, drop=lambda: None, request=request)
        return SimpleNamespace(http=http)

    monkeypatch.setattr(hub_calls, "find_hub", find_hub)
    calls = hub_calls.HubCalls()
    known: Any = SimpleNamespace(hub_url="http://hub", token=None)
    key: Any = object()
    calls.connect(lambda: known, key)
    with pytest.raises(CallError) as told:
        await asyncio.wrap_future(calls("LampSkill", NO_CALL, ("hall", "DoorSkill", "open"), (), {}))
    assert told.value.code == code
