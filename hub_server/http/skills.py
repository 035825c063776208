"""Skills called, and programs run, over HTTP and by pages, without a model in between."""

from typing import Final

from chat.operations import Needs, Resource
from contracts.answers.skills import CallResult, RunSummary
from hub_agent.calls.direct import CallBody, DirectCalls, ExecBody
from hub_agent.calls.from_skills import SkillCallBody, call_for_skill
from hub_live.topics.operations import PublishBody
from hub_registry.access.bearer import Bearer
from sandbox_host import RunResult

_CALLS: Final = Needs(("call",), devices=True)
_OF_SKILLS: Final = Needs(("chat",), devices=True, people=False)

calls: Resource[DirectCalls, Bearer] = Resource("calls", "/api")


@calls.post(_CALLS, "/skills/call", is_held=True)
async def call_skill(calls: DirectCalls, asking: Bearer, body: CallBody) -> CallResult:
    """Call a method of a skill; with `"text": true` the result comes in words, too."""
    return await calls.call(asking, body)


@calls.post(_OF_SKILLS, "/skills/call/within", is_held=True)
async def call_within(calls: DirectCalls, asking: Bearer, body: SkillCallBody) -> CallResult:
    """Call a method for a skill of the device, with the rights of the call `within` which it is made.

    The skill names what it calls in `uses`, which the owner approves.
    """
    return await call_for_skill(calls, asking, body)


@calls.post(_CALLS, "/exec", is_held=True)
async def run_program(calls: DirectCalls, asking: Bearer, body: ExecBody) -> RunSummary:
    """Run Python in the sandbox."""
    return _ran(await calls.run(asking, body))


@calls.post(_CALLS, "/bus/publish", is_held=True)
async def publish(calls: DirectCalls, asking: Bearer, body: PublishBody) -> CallResult:
    """Publish a message, as `BusSkill.publish` does."""
    given = body.model_dump(exclude_unset=True)
    confirmation = given.pop("confirmation", None)
    asked = CallBody(
        device="hub", skill="BusSkill", method="publish", kwargs=given, confirmation=confirmation
    )
    return await calls.call(asking, asked)


def _ran(result: RunResult) -> RunSummary:
    return RunSummary(
        status=result.status,
        stdout=result.stdout,
        value=result.value if result.plain else result.repr,
        error=result.traceback or result.problem or None,
        truncated=result.truncated,
        fresh=result.fresh,
        notice=f"The variables of earlier runs are gone: {result.lost}." if result.lost else None,
    )
