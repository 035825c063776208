"""A conversation as it is shown to programs, and as a document for people."""

from collections.abc import Iterable, Sequence

from contracts.answers.record import Conversation, ConversationTurn
from contracts.chat import TurnRecord


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
