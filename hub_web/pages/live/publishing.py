"""A message published by hand: what may be sent where, and exactly what will be, before it is."""

from collections.abc import Mapping

from hub_agent.calls.confirmations import ConfirmationNeeded
from hub_live.topics.operations import PublishBody
from hub_server.http.skills import publish as send_message
from hub_web import sb
from hub_web.parts.calls.forms import choice, switch, text_field
from hub_web.texts import size, text
from hub_web.view import view


def publish(links: Mapping[str, str], link: str, topic: str) -> None:
    """Ask for a message, show it with a warning, and send it.

    Args:
        links: The brokers, as a person calls them.
        link: The one that is chosen at first; ``topic`` likewise.
    """
    own = f"users/{view.user.id}/events/"

    async def send() -> bool:
        body = PublishBody.model_construct(
            topic=name.value, payload=payload.value, link=where.value, retain=retain.value
        )
        if not await _is_meant(body, links[body.link]):
            return False
        try:
            await view.api(send_message, body)
        except ConfirmationNeeded as needed:
            # The person has just confirmed exactly this.
            confirmed = body.model_copy(update={"confirmation": needed.confirmation})
            await view.api(send_message, confirmed)
        view.notify(text("Published on {topic}", topic=name.value))
        return True

    def chosen() -> None:
        on_bus = where.value == "bus"
        retain.set_visibility(not on_bus)
        retain.value = retain.value and not on_bus
        rule.set(
            text("Here you publish events of your own, on {topic}NAME, for programs of yours.", topic=own)
            + " "
            + text(
                "All other topics belong to the hub and to devices, for admins as well: call a skill instead."
            )
            if on_bus
            else text("Here you publish on every topic but those of the broker and of Strawberry itself.")
        )

    with view.form(text("Publish a message"), send, yes=text("Continue")):
        where = choice(text("Broker"), links, link)
        rule = sb.note("")
        name = text_field(text("Topic"), topic if link == "home" or topic.startswith(own) else own)
        payload = text_field(text("Payload"), lines=True, hint=text("Sent as it stands here"))
        retain = switch(text("The broker keeps it (retained)"))
    where.on_value_change(chosen)
    chosen()


async def _is_meant(message: PublishBody, broker: str) -> bool:
    def show() -> None:
        kept = text("Yes, until it is replaced") if message.retain else text("No")
        sb.facts(
            (text("Broker"), broker),
            (text("Topic"), message.topic),
            (text("Kept by the broker"), kept),
            (text("Size"), size(len(message.payload.encode()))),
        )
        sb.problem(
            text("This is sent as it is, and devices may act on it at once."),
            text("Strawberry checks nothing of it. A skill is the safer way to act on a device."),
        )
        sb.code(message.payload or text("(empty)"), label=text("Payload"))

    return await view.ask(text("Publish this?"), yes=text("Publish"), danger=True, show=show)
