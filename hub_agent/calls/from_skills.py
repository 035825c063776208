"""Calls that skills of devices make: with the rights of whom they run for, to what the owner approved."""

import asyncio
from typing import Annotated, Any

from pydantic import Field

from agent_core.schemas.arguments import check_arguments
from agent_core.search.catalogue import SkillCall, Target
from agent_core.search.directory import RegisteredSkill
from agent_core.search.targets import find_path
from contracts.answers.skills import CallResult
from contracts.devices.registration import MethodFlags
from contracts.devices.rpc import Actor
from contracts.errors import CallError, ErrorCode
from contracts.names import CallId, MethodName, SkillName
from contracts.wire import Json, Strict
from hub_agent import limits
from hub_agent.calls.audit import Origin
from hub_agent.calls.direct import DirectCalls
from hub_registry.access.bearer import Bearer
from hub_registry.devices.directory import Directory


class SkillCallBody(Strict):
    """A call that a skill makes.

    Attributes:
        caller: The skill of the device that asks.
        within: The call of the hub in which it is made; without one it is made for the owner of the device.
        during: The method that runs, where the device itself called it; None for what runs by itself.
        device: Its key, or ``hub``.
    """

    caller: SkillName
    within: CallId | None = None
    during: MethodName | None = None
    device: Annotated[str, Field(min_length=1, max_length=64)]
    skill: SkillName
    method: MethodName
    args: list[Json] = []
    kwargs: dict[str, Json] = {}


async def call_for_skill(calls: DirectCalls, asking: Bearer, body: SkillCallBody) -> CallResult:
    """Call a method for a skill.

    Raises:
        CallError: ``refused`` for what the skill does not declare, or the owner did not approve;
            ``needs_confirmation`` for what a person has to confirm, who cannot be asked here.
    """
    device, directory = asking.claims.sub, calls.registry.directory
    own = await _registered(directory, device, body.caller)
    parent = calls.manager.open_request(device, body.within) if body.within is not None else None
    if body.within is not None and (parent is None or parent.skill != own.name):
        raise CallError(ErrorCode.REFUSED, "the call of {caller} has ended", caller=body.caller)
    actor = Actor(user=asking.user.id, device=device, read_only=asking.user.read_only)
    if parent is not None:
        actor = parent.actor
    chain = [*filter(None, (actor.skill or "").split("/")), own.name]
    actor = actor.model_copy(update={"skill": "/".join(chain)})
    path = f"{body.device}.{body.skill}.{body.method}"
    try:
        # By the key that was approved: any device may have it for an alias.
        target = find_path(directory.seen_by(actor.user), f"devices.{path}", current=None)
        arguments = check_arguments(target.method, body.args, body.kwargs)
    except CallError:
        _check_use(own, path)  # an error tells of what it may call alone
        raise
    # What the device sends may be a stranger's text.
    call, origin = SkillCall(target, arguments, untrusted=True, has_read=True), Origin.of(asking.claims)
    try:
        _check_use(own, path)
        _check(own, parent.method if parent is not None else body.during, target, depth=len(chain))
    except CallError:
        calls.manager.note_refused(actor, call, origin=origin)
        raise
    async with calls.quotas.calls.turn(asking.claims, person=False):
        return CallResult(result=await calls.manager.call(actor, call, origin=origin))


async def _registered(directory: Directory, device: str, skill: str) -> RegisteredSkill:
    """Return a skill of a device as it counts; one that has just started is registered in a moment."""
    for _ in range(limits.REGISTRATION_LOOKS):
        entry = directory.get(device)
        if entry is not None and skill in entry.skills:
            return entry.skills[skill]
        await asyncio.sleep(limits.REGISTRATION_LOOK_S)
    raise CallError(ErrorCode.OFFLINE, "{skill} is not registered yet", skill=skill, device=device)


def _check_use(own: RegisteredSkill, path: str) -> None:
    if not {path, f"*.{path.partition('.')[2]}"} & set(own.registration.uses):
        hint = "Its author names it in 'uses', and an admin approves that on the page of its device."
        message = "{caller} may not call {path}"
        raise CallError(ErrorCode.REFUSED, message, caller=own.name, path=path, hint=hint)


def _check(own: RegisteredSkill, during: str | None, target: Target, *, depth: int) -> None:
    path, flags = f"{target.skill}.{target.method.name}", target.method.flags
    if during is not None:
        # A method does no more through others than it declares, for by that it was allowed to run.
        method = own.methods.get(during)
        having = method.flags if method is not None else MethodFlags(read_only=True)
        more = having.read_only > flags.read_only, flags.destructive > having.destructive
        if any(more) or flags.open_world > having.open_world:
            message = "{caller} may not call {path}, which does more than {method} declares"
            hint = "Its author gives it the flags of what it calls."
            values: dict[str, Any] = {"caller": own.name, "path": path, "method": during}
            raise CallError(ErrorCode.REFUSED, message, hint=hint, **values)
    if depth > limits.MOST_NESTED_CALLS:
        raise CallError(ErrorCode.REFUSED, "{caller} is called by too many skills in turn", caller=own.name)
    if flags.unknown or flags.confirm:
        message = "{method} needs a person's confirmation, which cannot be given here"
        hint = (
            "An admin can allow it on the page of its device. "
            "'strawberry skills allow' allows what its author left unknown."
        )
        raise CallError(ErrorCode.NEEDS_CONFIRMATION, message, method=path, hint=hint)
