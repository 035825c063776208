"""Calls of skills from the command line: values as they are typed, and the question before a call."""

import json
from typing import Any

from contracts.answers.skills import CallResult
from deploy.cli.client import HubClient, NeedsConfirmation
from deploy.cli.terminal.asking import agreed, call_question
from deploy.cli.terminal.output import note, waiting


def call_method(client: HubClient, body: dict[str, Any], *, yes: bool = False) -> CallResult | None:
    """Call a method, and ask where it needs a confirmation; None where the answer is no.

    Args:
        body: See ``hub_agent.calls.direct.CallBody``.
        yes: Whether it is confirmed without a question.
    """
    name = f"{body['skill']}.{body['method']}"
    try:
        with waiting(name):
            return client.post("/api/skills/call", body, CallResult)
    except NeedsConfirmation as wanted:
        question = call_question(f"{body['device']}: {name}", wanted.arguments)
        if not yes and not agreed(question, otherwise="Nothing was done. Run it in a terminal."):
            note("Not confirmed; nothing was done.")
            return None
        confirmed = {**body, "confirmation": wanted.confirmation}
    with waiting(name):
        return client.post("/api/skills/call", confirmed, CallResult)


def typed_value(text: str) -> Any:
    """Read what only JSON can say as JSON; the hub turns plain text into what the method takes."""
    if text[:1] in ("{", "[", '"') or text == "null":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
