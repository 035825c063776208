"""Tickets between replicas: for one request, once, and no token."""

import pytest

from contracts.errors import Unauthorized
from identity.keys import KeyPair
from identity.tickets import Ticket, TicketCheck, digest_of, issue_ticket
from identity.tokens import issue, make_claims, verify

HUB = "hub-1"
ASKED = "POST /api/watchers?"
CLAIMS = make_claims(
    hub_id=HUB, subject="ann", kind="user", owner="ann", scopes=("chat", "call"), lifetime_s=60
)


def ticket(key: KeyPair, *, hub: str = HUB, to: str = "west", purpose: str = "operation") -> str:
    made = {"purpose": purpose, "to": to, "request": ASKED, "body": digest_of(b"{}"), "claims": CLAIMS}
    return issue_ticket(key, hub, Ticket.model_validate(made))


def read(check: TicketCheck, text: str, *, request: str = ASKED, body: bytes = b"{}") -> Ticket:
    found = check.read(text, purpose="operation", request=request)
    found.check(body)
    return found


def test_a_ticket_is_good_once_and_names_the_bearer() -> None:
    key = KeyPair.generate()
    check = TicketCheck(key.public, hub_id=HUB, instance="west")
    once = ticket(key)
    assert read(check, once).claims == CLAIMS
    with pytest.raises(Unauthorized):
        read(check, once)


def test_a_ticket_that_has_expired_points_to_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    key = KeyPair.generate()
    with monkeypatch.context() as ahead:
        ahead.setattr("identity.tickets._LIFETIME_S", -300)
        late = ticket(key)
    with pytest.raises(Unauthorized, match="expired") as refused:
        read(TicketCheck(key.public, hub_id=HUB, instance="west"), late)
    assert "clocks" in refused.value.hint


def test_a_ticket_is_for_one_request_to_one_replica_and_neither_a_token() -> None:
    key = KeyPair.generate()
    check = TicketCheck(key.public, hub_id=HUB, instance="west")
    for other in (
        ticket(KeyPair.generate()),
        ticket(key, hub="hub-2"),
        ticket(key, to="east"),
        ticket(key, purpose="internal"),
        issue(key, CLAIMS),
    ):
        with pytest.raises(Unauthorized):
            read(check, other)
    with pytest.raises(Unauthorized):
        read(check, ticket(key), request="POST /api/users?")
    with pytest.raises(Unauthorized):
        read(check, ticket(key), body=b'{"role": "admin"}')
    with pytest.raises(Unauthorized):
        verify(ticket(key), key=key.public, hub_id=HUB, audience="http")
