"""What one replica passes on to another is what was asked for, by who may ask it."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from chat.http.streams import Connections
from chat.operations import Needs, Operations, Resource
from contracts.errors import LinkError, NotFound, Superseded
from hub_agent.prompt import Asked
from hub_registry.access.accounts import Accounts, User
from hub_registry.access.bearer import Bearer
from hub_registry.storage.replicas import Term
from hub_registry.storage.store import Store, fencing, open_store
from hub_registry.storage.tables import ReplicaRow, now
from hub_server import limits
from hub_server.replicas.live import RemoteLive
from hub_server.replicas.passing import From, Passing
from hub_server.replicas.routing import Routing
from identity.keys import KeyPair
from identity.tickets import Ticket
from identity.tokens import make_claims

people: Resource[list[str], Any] = Resource("users", "/people")


@people.delete(Needs(("admin",), password=True), "/{name}")
async def remove(service: list[str], asking: Any, name: str) -> None:
    """Remove a person."""
    service.append(name)


class _Here:
    """A replica that gains the lead while it is looked up who asks; it would have passed the request on."""

    leads = False

    def passes(self, operation: Any) -> bool:
        return not self.leads

    async def place(self, *_: Any) -> None:
        return None

    async def admit(self, *_: Any) -> Any:
        self.leads = True

    def recording(self, *_: Any) -> AbstractContextManager[None]:
        return nullcontext()

    doing = recording


async def test_a_lead_that_is_gained_meanwhile_does_not_save_the_password() -> None:
    here: Any = _Here()
    operations, removed = Operations(here, Connections(None)), list[str]()
    operations.mount(people, removed)
    operations.elsewhere = here
    with pytest.raises(LinkError, match="another replica"):
        await operations.call(remove, here.admit, "ann")
    assert removed == []


guests: Resource[Store, Any] = Resource("guests", "/guests")


@guests.post(Needs(("admin",)), "/{name}")
async def invite(store: Store, asking: Any, name: str) -> None:
    """Add a person, while another replica gains the lead."""
    with fencing(None):
        await store.write(lambda session: session.add(replica_at("", instance="c", term=2)))
    await Accounts(store).add(name, role="guest")


async def test_a_leader_that_is_replaced_while_it_does_what_was_asked_stores_nothing(tmp_path: Path) -> None:
    nothing: Any = None
    here: Any = _Here()
    leader: Any = SimpleNamespace(parts=object())

    async def admit(*_: Any) -> Any:
        return SimpleNamespace(connection=None)

    async with open_store(tmp_path / "hub.db") as store:
        await store.write(lambda session: session.add(replica_at("", term=1)))
        term = Term(store, 1)
        replica: Any = SimpleNamespace(instance="b", term=term)
        operations = Operations[Any](here, Connections(nothing))
        operations.mount(guests, store)
        operations.elsewhere = Routing(replica, leader, store, nothing, make_passing(), nothing)
        with pytest.raises(Superseded):
            await operations.call(invite, admit, "Ann")
        assert await Accounts(store).users() == []
        assert term.lost.is_set()


def make_passing() -> Passing:
    """The passing on of a replica ``a``, which believes that all others are there."""
    registry: Any = SimpleNamespace(
        key=KeyPair.generate(),
        hub_id="home-1",
        settings=SimpleNamespace(bus=SimpleNamespace(ca=None)),
        admin=User("owner", "Owner", "admin"),
    )
    return Passing(registry, SimpleNamespace(), instance="a", runs=lambda _: True)  # type: ignore[arg-type]


def replica_at(url: str, *, instance: str = "b", term: int = 1) -> ReplicaRow:
    return ReplicaRow(instance=instance, url=url, version="", started_at=now(), seen_at=now(), term=term)


async def test_no_name_leads_to_another_path() -> None:
    passing, row = make_passing(), replica_at("http://127.0.0.1:1")
    with pytest.raises(NotFound):
        await passing.call(row, remove, SimpleNamespace(), {"name": ".."})  # type: ignore[arg-type]
    await passing.close()


async def test_the_connection_to_the_other_replica_ends_when_the_client_left_before_the_answer_came() -> None:
    ended = asyncio.Event()

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await reader.read()
        ended.set()
        writer.close()

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        # The client reads nothing.
        await asyncio.Event().wait()

    async with await asyncio.start_server(other, "127.0.0.1") as server:
        url = "http://{}:{}".format(*server.sockets[0].getsockname())
        scope: dict[str, Any] = {"type": "http", "path": "/api", "query_string": b"", "headers": []}
        request = Request(scope | {"method": "GET", "scheme": "http", "server": ("home.lan", 80)})
        request._body = b""
        asking = replace(Bearer.inside("home-1", "test", User("ann", "Ann", "member")), connection=request)
        passing = make_passing()
        response = await passing.forward(replica_at(url), request, asking)
        await response(scope, receive, send)
        await asyncio.wait_for(ended.wait(), 10)
        await passing.close()


async def test_what_was_passed_on_counts_as_asked_from_and_at_the_addresses_of_the_first_request() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}"}

    headers = [(b"host", b"10.0.0.9:8443"), (b"user-agent", b"spoke")]
    scope = {"type": "http", "scheme": "http", "path": "/api", "query_string": b"", "headers": headers}
    request = Request(scope | {"client": ("10.0.0.8", 1)}, receive)
    await request.body()
    claims = make_claims(
        hub_id="home-1", subject="ann", kind="user", owner="ann", scopes=("chat",), lifetime_s=60
    )
    ticket = Ticket(
        purpose="open",
        to="b",
        request="",
        body="",
        claims=claims,
        source="10.0.0.7",
        base="https://home.lan/",
    )
    asked = From(request, ticket)
    assert asked.client is not None
    assert (asked.client.host, str(asked.url), asked.headers["user-agent"]) == (
        "10.0.0.7",
        "https://home.lan/api",
        "spoke",
    )
    assert await asked.body() == b"{}"


async def test_what_was_passed_on_to_one_that_has_just_gained_the_lead_waits_until_all_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LEADER_LOOK_S", 0)
    leader = SimpleNamespace(parts=None)
    replica = SimpleNamespace(instance="a", term=object())

    async def read(_: Any) -> list[Any]:
        leader.parts = object()
        return []

    nothing: Any = None
    store: Any = SimpleNamespace(read=read)
    routing = Routing(replica, leader, store, nothing, make_passing(), nothing)  # type: ignore[arg-type]
    passed_on = From.__new__(From)
    assert await routing.leader(passed_on) is None
    leader.parts, replica.term = None, None
    with pytest.raises(LinkError, match="leads right now"):
        await routing.leader(passed_on)


async def test_each_replica_that_runs_has_a_place_of_its_own_in_which_it_restarts() -> None:
    nothing: Any = None
    rows = [(replica_at("", instance=name), name != "b") for name in ("d", "a", "c", "b")]

    async def read(_: Any) -> list[Any]:
        return rows

    places = []
    for name in ("a", "c", "d"):
        replica, store = SimpleNamespace(instance=name, term=None), SimpleNamespace(read=read)
        routing = Routing(replica, nothing, store, nothing, make_passing(), nothing)  # type: ignore[arg-type]
        await routing.presence.look()
        places.append(routing.restart_place)
    assert places == [1, 2, 3]


async def test_a_prompt_does_not_wait_for_a_leader_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REMOTE_PART_S", 0)
    passing = make_passing()
    nothing: Any = None
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1") as stopped:
        url = "http://{}:{}".format(*stopped.sockets[0].getsockname())
        routing: Any = SimpleNamespace(leading_row=lambda: replica_at(url))
        live = RemoteLive(nothing, nothing, nothing, routing, passing)
        assert await live.part("memory", Asked(User("ann", "Ann", "member"))) is None
    await passing.close()


async def test_turns_of_a_replica_that_only_connects_again_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEADER_LOOK_S", 0)
    row = replica_at("")
    ended, missed = list[str](), iter(range(20))

    async def read(work: Any) -> Any:
        return [(row, next(missed, None) is None)] if work.__name__ == "replicas" else "b"

    async def clean_up(instance: str) -> None:
        ended.append(instance)

    parts: Any = SimpleNamespace(
        replica=SimpleNamespace(instance="a", term=None),
        leader=SimpleNamespace(parts=object()),
        store=SimpleNamespace(read=read),
        record=SimpleNamespace(clean_up=clean_up),
    )
    routing = Routing(parts.replica, parts.leader, parts.store, parts.record, make_passing(), parts)
    assert await routing.runs("ann", "t1") is row
    assert ended == []
    monkeypatch.setattr("hub_registry.limits.REPLICA_SILENT_S", 0)
    missed = iter(range(20))
    assert await routing.runs("ann", "t1") is None
    assert "b" in ended
