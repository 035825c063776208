"""Rights of `contracts.access` as EMQX reads them from the claim ``acl`` of a token."""

from typing import Final

from contracts.access import Principal, allowed, rights

__all__ = ["ACL_CLAIM", "acl"]

ACL_CLAIM: Final = "acl"


def acl(principal: Principal) -> list[dict[str, str]]:
    """Return what a principal may do; EMQX denies the rest, see ``emqx.conf`` of `deploy.rendering`.

    EMQX delivers what it lets a client subscribe to. So the filter ``#`` of a reader, of whom our own brokers
    then filter what is delivered, is refused.
    """
    given = rights(principal)
    rules = [("publish", each.filter) for each in given if each.action == "publish"]
    rules += [
        ("subscribe", each.filter)
        for each in given
        if each.action == "receive" and allowed(given, "subscribe", each.filter)
    ]
    # Topics of the broker's own are none of EMQX.
    return [
        {"permission": "allow", "action": action, "topic": topic}
        for action, topic in rules
        if not topic.startswith("$")
    ]
