"""One call that any of several devices may serve."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from bus.rpc.caller import Caller
from bus.rpc.request import CallRequest, OnProgress
from contracts.errors import CallError, ErrorCode
from contracts.phrases import Phrase
from contracts.wire import Json

_FINAL = frozenset({ErrorCode.BAD_ARGUMENTS, ErrorCode.NEEDS_CONFIRMATION, ErrorCode.CANCELLED})
"""Errors of the call itself: the next device would say the same."""


class Served(NamedTuple):
    """A result, and the device that gave it."""

    device: str
    value: Json


async def call_any(
    caller: Caller,
    candidates: Sequence[str],
    request: CallRequest,
    on_progress: OnProgress | None = None,
    *,
    on_silent: Callable[[str], None] = lambda _: None,
) -> Served:
    """Call a device-agnostic method on the first device that serves it.

    Read-only calls are tried on one device after another, each for as long as it gives signs of life.
    Every other is reserved first, and goes to the next device only while it has not been started.

    Args:
        candidates: Ids of devices, the preferred one first.
        request: Its ``device`` is replaced by each candidate's in turn.
        on_silent: Called with each device that did not answer in time.

    Raises:
        CallError: With what each device said, where none served it.
    """
    failures: list[CallError] = []
    waits = caller.settings
    for device in candidates:
        attempt, is_last = replace(request, device=device), device == candidates[-1]
        try:
            if request.read_only:
                silence_s = waits.silence_s if is_last else waits.next_s
                return Served(device, await caller.call(attempt, on_progress, silence_s=silence_s))
            reserved = await caller.reserve(attempt, accept_s=None if is_last else waits.next_s)
        except CallError as error:
            if error.code in _FINAL:
                raise
            failures.append(error)
            if error.code is ErrorCode.TIMEOUT:
                on_silent(device)
            continue
        return Served(device, await caller.start(reserved, on_progress))
    raise _combined(request, failures)


def _combined(request: CallRequest, failures: list[CallError]) -> CallError:
    name = f"{request.skill}.{request.method}"
    if not failures:
        return CallError(
            ErrorCode.OFFLINE,
            "no device with {name} is connected",
            name=name,
            hint="Turn on a device that has it.",
        )
    if len(failures) == 1:
        return failures[0]
    codes = {error.code for error in failures}
    # What a device said weighs more than that another one was away.
    said = [error.code for error in failures if error.code is not ErrorCode.OFFLINE]
    code = codes.pop() if len(codes) == 1 else said[-1]
    names = (request.names.get(error.device or "", error.device) for error in failures)
    texts = [
        Phrase("{name}: {error}", name=device, error=error.message)
        for device, error in zip(names, failures, strict=True)
    ]
    each = Phrase.joined("; ", texts)
    return CallError(code, "no device could run {name}: {each}", name=name, each=each, hint=failures[-1].hint)
