"""A turn that a declared sentence answers: one call, no model."""

from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, nullcontext

from agent_core.search.catalogue import Catalogue
from agent_core.sentences.index import SentenceCall, SentenceChoice
from agent_core.sentences.responses import response_text
from agent_core.tools.skill_calls import Consent, SkillCaller, SkillCalls
from agent_core.turn import Emit, TurnContext, streamed
from contracts.chat import TextDelta, TurnEvent, TurnFinal
from contracts.errors import CallError


def run_sentence(
    matched: SentenceCall | SentenceChoice,
    *,
    turn: str,
    catalogue: Catalogue,
    caller: SkillCaller,
    consent: Consent,
    device: str | None = None,
) -> AsyncGenerator[TurnEvent, None]:
    """Make the call that a sentence means, with all rights and confirmations, and say its result.

    Where the sentence may mean several calls, nothing is called and the user is asked.
    The last event is exactly one ``TurnFinal`` or ``TurnError``, as with ``loop.run_turn``.

    Args:
        consent: Asks the person where the call needs it; notes whether its result may be a stranger's.
        device: Id of the current device.
    """

    def final(emit: Emit, text: str) -> None:
        emit(TextDelta(text=text))
        emit(TurnFinal(answer=text, mode="sentence", device=device))

    async def work(emit: Emit) -> None:
        if isinstance(matched, SentenceChoice):
            final(emit, matched.question)
            return
        context = TurnContext(turn, emit, _unpaused)
        calls = SkillCalls(catalogue, caller=caller, consent=consent, context=context)
        try:
            result = await calls.call(matched.target, [], matched.arguments)
        except CallError as error:
            final(emit, f"{error.message}. {error.hint}".rstrip(". ") + ".")
        else:
            method = matched.target.method
            final(emit, response_text(method, result, matched.arguments, language=matched.language))

    return streamed(work, name=f"sentence {turn}")


def _unpaused() -> AbstractContextManager[object]:
    """No clock of the turn runs here: the call has its own time-out, the question its own."""
    return nullcontext()
