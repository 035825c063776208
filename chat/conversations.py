"""Conversations: listed, read, renamed and deleted, and their turns cancelled; alike on a hub and a spoke."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from starlette.responses import PlainTextResponse, Response

from chat import limits
from chat.http.requests import Answer, answer, checked_token
from chat.operations import Needs, Resource
from chat.service import ChatService, unknown_conversation
from contracts.answers.record import Conversation, ConversationTitle, ConversationTurn
from contracts.chat.messages import ConversationSummary, TurnRecord, TurnState
from contracts.names import Token
from contracts.text import shortened
from contracts.wire import Part

CHAT: Final = Needs(("chat",), devices=True)

Serving = Callable[[], Awaitable[ChatService[Any]]]
"""Returns what answers; asked with each request, so that it can be loaded with the first."""

_Most = Annotated[int, Field(ge=1, le=1000)]


def _one_line(text: str) -> str:
    return " ".join(text.split())


_Title = Annotated[str, AfterValidator(_one_line), Field(max_length=120)]


class Confirmation(Part):
    """A person's answer to a question."""

    approve: bool


class CancelledTurn(Part):
    """What a turn was when it was cancelled."""

    state: TurnState


conversations: Resource[Serving, Any] = Resource("conversations", "/api")


@conversations.post(CHAT, "/turns/{turn}/cancel")
async def cancel(serving: Serving, asking: Any, turn: str) -> CancelledTurn:
    """Cancel a turn, or keep one that has not arrived from ever running.

    `state` is `not_started`, `running`, `cancelled` or `finished`.
    """
    return CancelledTurn(state=await (await serving()).cancel(checked_token(turn, "turn"), asking))


@conversations.post(replace(CHAT, confirms=True), "/turns/{turn}/confirmations/{question}")
async def confirm(serving: Serving, asking: Any, turn: str, question: str, approve: bool) -> Confirmation:
    """Answer a question of a turn."""
    service = await serving()
    await service.confirm(checked_token(turn, "turn"), question, asking, approve=approve)
    return Confirmation(approve=approve)


@conversations.get(CHAT, "/conversations")
async def list_conversations(
    serving: Serving, asking: Any, limit: _Most = limits.CONVERSATIONS_LISTED, q: str = ""
) -> list[ConversationSummary]:
    """List conversations, newest first.

    With `q` only those with all of its words, or their beginnings, in one turn, or with `q` in the title,
    and up to five that are about it; a spoke that does not reach the hub searches only the first questions,
    for `q` as a substring. `asked` is the first question, shortened; `title` is what a person called it, or
    null; `at` is the time of the latest message. A device sees those that it took part in.
    """
    words = q.strip()[: limits.MAX_SEARCH]
    known = await (await serving()).conversations(asking, limit=limit, words=words)
    return [
        each.model_copy(update={"asked": shortened(_one_line(each.asked), limits.MAX_QUESTION_LISTED)})
        for each in known
    ]


@conversations.get(CHAT, "/conversations/{conversation}")
async def show_conversation(
    serving: Serving,
    asking: Any,
    conversation: str,
    limit: _Most = limits.TURNS_LISTED,
    before: Token | None = None,
) -> Conversation:
    """Return the latest turns of a conversation, oldest first.

    `mode` is null if the answer broke off or there was none; `origin` is `device` for what a device handed
    in; `replaced_by` is the turn that [took its place](#changed-questions), or null.

    Args:
        before: Id of a turn, to read on from there.
    """
    service, name = await serving(), checked_token(conversation, "conversation")
    turns = await service.turns(name, asking, limit=limit, before=before)
    if not turns and before is None:
        raise unknown_conversation(name)
    return exported(name, await service.title(name, asking), turns)


@conversations.get(CHAT, "/conversations/{conversation}/export")
async def export(
    serving: Serving,
    asking: Any,
    conversation: str,
    format: Literal["json", "markdown"] = "json",  # noqa: A002 - the field's word
) -> Answer[Conversation] | Annotated[Response, "text/markdown"]:
    """Return all turns of a conversation, as above, or as a document with `format=markdown`."""
    service, name = await serving(), checked_token(conversation, "conversation")
    turns: list[TurnRecord] = []
    most = limits.TURNS_EXPORTED_AT_ONCE
    while page := await service.turns(name, asking, limit=most, before=turns[0].turn if turns else None):
        turns[:0] = page
        if len(page) < most:
            break
    if not turns:
        raise unknown_conversation(name)
    title = await service.title(name, asking)
    if format == "markdown":
        return PlainTextResponse(as_markdown(name, title, turns), media_type="text/markdown")
    return answer(exported(name, title, turns))


@conversations.patch(CHAT, "/conversations/{conversation}")
async def rename(serving: Serving, asking: Any, conversation: str, title: _Title | None) -> ConversationTitle:
    """Set the title of a conversation; null or an empty text removes it.

    A device may do so only for one that was held through it alone.
    """
    name = checked_token(conversation, "conversation")
    await (await serving()).rename(name, title or None, asking)
    return ConversationTitle(id=name, title=title or None)


@conversations.delete(CHAT, "/conversations/{conversation}")
async def delete(serving: Serving, asking: Any, conversation: str) -> None:
    """Delete a conversation for good, with the variables of its programs.

    A device may do so only for one that was held through it alone.
    """
    await (await serving()).delete(checked_token(conversation, "conversation"), asking)


def exported(conversation: str, title: str | None, turns: Iterable[TurnRecord]) -> Conversation:
    """Return a conversation as it becomes JSON."""
    shown = [ConversationTurn.model_construct(**vars(turn)) for turn in turns]
    return Conversation(id=conversation, title=title, exchanges=shown)


def as_markdown(conversation: str, title: str | None, turns: Sequence[TurnRecord]) -> str:
    """Return a conversation as Markdown: each question as a quotation, then its answer."""
    first = " ".join(turns[0].question.split())
    parts = [f"# {title or first}", f"Conversation `{conversation}`, times in UTC."]
    for turn in turns:
        about = [f"{turn.at:%Y-%m-%d %H:%M}", turn.device or "", turn.mode or turn.state]
        if turn.replaced_by is not None:
            about.append("replaced")
        if turn.untrusted:
            about.append("read text from outside")
        parts.append(f"## {' · '.join(filter(None, about))}")
        parts.append("\n".join(f"> {line}".rstrip() for line in turn.question.split("\n")))
        parts.append(turn.answer or f"*no answer{': ' * bool(turn.problem)}{turn.problem}*")
        if turn.did:
            parts.append("\n".join(f"- `{line}`" for line in turn.did))
    return "\n\n".join(parts) + "\n"
