"""A turn that a declared sentence answers: one call, no model."""

from contextlib import nullcontext

from agent_core.search.catalogue import Catalogue
from agent_core.sentences.index import SentenceCall, SentenceChoice
from agent_core.sentences.responses import failure_text, primary, response_text
from agent_core.tools.skill_calls import Consent, SkillCaller, SkillCalls
from agent_core.turn import Emit, TurnContext
from contracts.chat.messages import TextDelta, TurnFinal
from contracts.errors import CallError, ErrorCode


async def run_sentence(
    matched: SentenceCall | SentenceChoice,
    *,
    turn: str,
    catalogue: Catalogue,
    caller: SkillCaller,
    consent: Consent,
    emit: Emit,
    device: str | None = None,
) -> None:
    """Make the call that a sentence means, with all rights and confirmations, and say its result.

    Where the sentence may mean several calls, nothing is called and the user is asked.
    The last event is a ``TurnFinal``.

    Args:
        consent: Asks the person where the call needs it; notes whether its result may be a stranger's.
        emit: Takes what happens.
        device: Id of the current device.
    """
    is_failure = False
    if isinstance(matched, SentenceChoice):
        text = matched.question
    else:
        # Nothing pauses: the call and the question have time-outs of their own.
        context = TurnContext(turn, emit, nullcontext)
        calls = SkillCalls(catalogue, caller=caller, consent=consent, context=context, by_sentence=True)
        try:
            result = await calls.call(matched.target, [], matched.arguments)
        except CallError as error:
            asked = consent.question if error.code is ErrorCode.NEEDS_CONFIRMATION else ""
            text, is_failure = asked or failure_text(error, language=matched.language), not asked
        else:
            method = matched.target.method
            is_declared = matched.language in map(primary, method.responses)
            text = "" if matched.answer is None or is_declared else matched.answer(result)
            text = text or response_text(method, result, matched.arguments, language=matched.language)
    emit(TextDelta(text=text))
    emit(TurnFinal(answer=text, mode="sentence", device=device, failed=is_failure))
