"""Two registries on one PostgreSQL: what one of them stores counts in the other at once."""

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.exc import DatabaseError
from sqlmodel import Session, select
from starlette.requests import Request

from contracts import topics
from contracts.claims import Claims
from contracts.devices.presence import Revocation
from contracts.errors import ConfigError, StaleProof, StorageError, Superseded, Unauthorized
from hub_registry import limits
from hub_registry.access.accounts import UserChange
from hub_registry.access.bearer import Gate
from hub_registry.access.token_rows import TokenRequest
from hub_registry.bus.hub_presence import HubPresence
from hub_registry.bus.service import RegistryService
from hub_registry.devices.devices import DeviceChange
from hub_registry.devices.journal import follow
from hub_registry.devices.presence import HighWater
from hub_registry.devices.registrations import read_registration
from hub_registry.registry import Registry, open_registry
from hub_registry.settings import RegistrySettings
from hub_registry.storage.news import _CHANNEL, _HUB
from hub_registry.storage.postgresql import _WRITER, Candidacy, PostgreSQL
from hub_registry.storage.replicas import Replica, Term
from hub_registry.storage.replicas import replicas as listed
from hub_registry.storage.tables import ApprovalRow, ReplicaRow, now
from identity.envelope import Seal
from identity.keys import KeyPair
from identity.limits import BEFORE_START_S
from identity.logins.proofs import make_proof
from identity.tokens import token_id
from tests import postgresql
from tests.hub_registry.spokes import eventually, registration
from tests.requirements import require


@pytest.fixture
def url(tmp_path: Path) -> str:
    require(postgresql.programs() is not None, postgresql.HINT)
    return postgresql.database(f"t{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:20]}")


@dataclass
class Replicas:
    """Two of one hub."""

    url: str
    one: Registry
    other: Registry


def cut(url: str) -> None:
    """End all sessions, as a server does that restarts."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid != pg_backend_pid()"
        )


def revoke_silently(url: str, claims: Claims) -> None:
    """Revoke a token as one does whose news get lost."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE token SET revoked_at = issued_at WHERE jti = %s", (claims.jti,))


@asynccontextmanager
async def replica(
    url: str, key: KeyPair, *, is_replica: bool = True, name: str = "main"
) -> AsyncIterator[Registry]:
    settings = RegistrySettings(database=url, is_replica=is_replica, instance=name)
    async with open_registry(settings, key=key) as registry:
        yield registry


@pytest.fixture
async def replicas(url: str, hub_key: KeyPair) -> AsyncIterator[Replicas]:
    async with replica(url, hub_key) as one, replica(url, hub_key, name="other") as other:
        one.journal.store = one.store  # it leads
        yield Replicas(url, one, other)


async def token_of(registry: Registry, *, is_session: bool = False) -> tuple[str, Claims]:
    request = TokenRequest(
        kind="user",
        subject="admin",
        owner="admin",
        scopes=["chat"],
        lifetime_s=600,
        is_session=is_session,
    )
    token = await registry.authority.issue(request)
    return token, registry.authority.check(token)


async def test_a_token_revoked_at_one_replica_ends_at_the_other(replicas: Replicas) -> None:
    token, claims = await token_of(replicas.one)
    await replicas.other.authority.authenticate(token)
    told: list[Revocation] = []

    async def listen(revocation: Revocation) -> None:
        told.append(revocation)

    replicas.other.authority.on_revoked(listen)
    async with asyncio.timeout(1):
        await replicas.one.authority.revoke([claims.jti])
        await eventually(lambda: bool(told))
    assert [each.tokens for each in told] == [[claims.jti]]
    with pytest.raises(Unauthorized, match="revoked"):
        replicas.other.authority.check(token)


async def test_whether_a_login_of_another_is_good_can_be_asked_before_its_news_come(
    replicas: Replicas,
) -> None:
    request = TokenRequest(kind="client", subject="grafana", owner="ann", scopes=["chat"], lifetime_s=600)
    jti = token_id(await replicas.one.authority.issue(request))
    assert await replicas.other.authority.read_good(jti)
    await replicas.one.authority.revoke([jti])
    assert await replicas.other.authority.read_good(jti) is False
    assert await replicas.other.authority.read_good("another") is None


async def test_what_was_revoked_while_the_server_was_away_counts_once_it_is_back(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A connection that was used a moment ago is not tried before it is used again.
    monkeypatch.setattr(limits, "DATABASE_TRUSTED_S", 0)
    token, claims = await token_of(replicas.one)
    await replicas.other.authority.authenticate(token)
    revoke_silently(replicas.url, claims)
    cut(replicas.url)
    await eventually(lambda: replicas.other.authority.is_revoked(claims.jti))
    # And the new session hears of the next.
    _, more = await token_of(replicas.one)
    await eventually(lambda: more.jti in replicas.other.authority._rows)


async def test_people_and_their_roles_follow(replicas: Replicas) -> None:
    ann = await replicas.one.accounts.add("Ann", role="member")
    assert (await replicas.other.accounts.get(ann.id)).role == "member"
    await replicas.one.people.change(ann.id, UserChange(role="guest", name="Anna"))

    async def is_changed() -> bool:
        user = await replicas.other.accounts.get(ann.id)
        return (user.display_name, user.role) == ("Anna", "guest")

    await eventually(is_changed)


async def test_devices_skills_and_the_owner_s_decisions_follow(replicas: Replicas) -> None:
    one, other = replicas.one, replicas.other
    device, key = await one.devices.add("Radio", owner="admin"), KeyPair.generate()
    invitation = await other.invite(device.id)
    await other.enrolment.enrol(invitation.token, key.public.jwk())

    def register(*methods: str) -> None:
        made = registration("MediaSkill", *methods)
        payload = Seal(one.hub_id, key).seal(topics.SKILL.build(device=device.id, skill=made.skill), made)
        read = read_registration(
            payload, hub_id=one.hub_id, device=device.id, skill=made.skill, key=key.public
        )
        one.directory.put_skill(device.id, read)
        one.journal.skill(device.id, key.kid, read)

    def methods() -> list[str]:
        found = other.directory.get(device.id)
        return [name for skill in found.skills.values() for name in skill.methods] if found else []

    await eventually(lambda: one.directory.public_key(device.id) == key.public)
    register("play")
    await one.journal.flush()
    await eventually(lambda: methods() == ["play"])
    register("play", "stop")
    await one.journal.flush()
    await one.directory.approvals.flush(one.store)
    await eventually(lambda: methods() == ["play", "stop"])
    entry = other.directory.get(device.id)
    assert entry is not None
    await other.allow(entry, "MediaSkill", "play", entry.skills["MediaSkill"].methods["play"].digest)
    await eventually(lambda: not one.directory.find("Radio", "MediaSkill", "play").method.flags.unknown)
    assert one.directory.find("Radio", "MediaSkill", "stop").method.flags.unknown
    await one.change_device(device.id, DeviceChange(name="Kitchen radio", shared=True))
    await eventually(lambda: "Kitchen radio" in other.directory.get(device.id).names)
    await one.revoke_device(device.id)
    await eventually(lambda: other.directory.public_key(device.id) is None)
    await one.devices.remove(device.id)
    await eventually(lambda: other.directory.get(device.id) is None)


async def test_what_is_newer_here_is_not_taken_back_by_what_another_stores(replicas: Replicas) -> None:
    one, other = replicas.one, replicas.other
    device, key = await one.devices.add("Radio", owner="admin"), KeyPair.generate()
    await one.enrolment.enrol((await one.invite(device.id)).token, key.public.jwk())
    made = registration()
    payload = Seal(one.hub_id, key).seal(topics.SKILL.build(device=device.id, skill=made.skill), made)
    read = read_registration(payload, hub_id=one.hub_id, device=device.id, skill=made.skill, key=key.public)
    one.directory.put_skill(device.id, read)
    one.journal.skill(device.id, key.kid, read)  # not written yet
    await eventually(lambda: other.directory.public_key(device.id) == key.public)
    await other.devices.change(device.id, DeviceChange(area="Kitchen"))
    await eventually(lambda: one.directory.get(device.id).device.area == "Kitchen")
    await eventually(lambda: "MediaSkill" in other.directory.get(device.id).skills)
    assert "MediaSkill" in one.directory.get(device.id).skills


@pytest.mark.parametrize("is_writing", [True, False])
async def test_skills_that_come_while_changes_of_another_are_read_stay(
    replicas: Replicas, is_writing: bool
) -> None:
    one = replicas.one
    device, key = await one.devices.add("Radio", owner="admin"), KeyPair.generate()
    await one.enrolment.enrol((await one.invite(device.id)).token, key.public.jwk())
    goes_on = threading.Event()

    def register(skill: str) -> None:
        made = registration(skill)
        payload = Seal(one.hub_id, key).seal(topics.SKILL.build(device=device.id, skill=skill), made)
        read = read_registration(payload, hub_id=one.hub_id, device=device.id, skill=skill, key=key.public)
        one.directory.put_skill(device.id, read)
        one.journal.skill(device.id, key.kid, read)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(one.store.write(lambda _: goes_on.wait(30)))
        register("MediaSkill")
        one.directory.approvals.leave_unwritten()
        if is_writing:
            tasks.create_task(one.journal.flush())
        following = tasks.create_task(follow(one.store, one.directory, one.journal, hub_id=one.hub_id))
        await asyncio.wait({following}, timeout=0.1)
        register("LampSkill")
        goes_on.set()
    entry = one.directory.get(device.id)
    assert entry is not None
    assert entry.registered.keys() == {"MediaSkill", "LampSkill"}


async def test_a_decision_at_a_leader_that_was_replaced_does_not_count(replicas: Replicas) -> None:
    one, other = replicas.one, replicas.other
    device, key = await one.devices.add("Radio", owner="admin"), KeyPair.generate()
    await one.enrolment.enrol((await one.invite(device.id)).token, key.public.jwk())
    made = registration()
    payload = Seal(one.hub_id, key).seal(topics.SKILL.build(device=device.id, skill=made.skill), made)
    read = read_registration(payload, hub_id=one.hub_id, device=device.id, skill=made.skill, key=key.public)
    one.directory.put_skill(device.id, read)
    one.journal.skill(device.id, key.kid, read)
    await one.journal.flush()
    await one.directory.approvals.flush(one.store)
    await eventually(lambda: other.directory.public_key(device.id) == key.public)
    await eventually(lambda: "MediaSkill" in other.directory.get(device.id).skills)
    entry, name = one.directory.get(device.id), made.methods[0].name
    assert entry is not None
    shown = entry.skills["MediaSkill"].methods[name]

    def refuse(_: Session) -> None:
        raise Superseded("another replica leads")

    nothing: Any = None
    presence = HubPresence(Seal(one.hub_id, one.key), instance="one")
    service = RegistryService(one, link=nothing, presence=presence)
    async with service.leading(one.store.fenced(refuse)):
        with pytest.raises(Superseded):
            await one.allow(entry, "MediaSkill", name, shown.digest)
    await eventually(lambda: one.directory.find("Radio", "MediaSkill", name).method.flags.unknown)
    stored = await other.store.read(lambda session: session.exec(select(ApprovalRow)).all())
    assert not any("allowed" in row.known for row in stored)
    assert other.directory.find("Radio", "MediaSkill", name).method.flags.unknown


async def test_presence_and_signs_of_life_are_not_told(replicas: Replicas) -> None:
    device, key = await replicas.one.devices.add("Radio", owner="admin"), KeyPair.generate()
    await replicas.one.enrolment.enrol((await replicas.one.invite(device.id)).token, key.public.jwk())
    with psycopg.connect(replicas.url, autocommit=True) as listening:
        (channel,) = listening.execute(f"SELECT {_CHANNEL}").fetchone()
        listening.execute(f"LISTEN {channel}")
        replicas.one.journal.alive(device.id, now())
        replicas.one.journal.high_water(device.id, key.kid, HighWater(2, 1, 1))
        await replicas.one.journal.flush_alive()
        await replicas.one.journal.flush()
        await replicas.one.accounts.add("Ann", role="member")
        told = [each.payload.split()[1:] for each in listening.notifies(timeout=5, stop_after=1)]
    assert told == [["user"]]


async def test_a_plain_hub_and_replicas_exclude_each_other(url: str, hub_key: KeyPair) -> None:
    async with replica(url, hub_key):
        with pytest.raises(ConfigError, match="another hub uses the database"):
            async with replica(url, hub_key, is_replica=False):
                pass
    async with replica(url, hub_key, is_replica=False):
        with pytest.raises(ConfigError, match="another hub uses the database"):
            async with replica(url, hub_key):
                pass


async def test_a_hub_whose_server_restarts_claims_the_database_again(url: str, hub_key: KeyPair) -> None:
    async with replica(url, hub_key, is_replica=False) as hub:
        _, claims = await token_of(hub)
        revoke_silently(url, claims)
        cut(url)
        # It reads all again once it has claimed again.
        await eventually(lambda: hub.authority.is_revoked(claims.jti))
        with pytest.raises(ConfigError, match="another hub uses the database"):
            async with replica(url, hub_key, is_replica=False):
                pass
        assert await hub.accounts.users()


async def test_a_hub_that_lost_its_database_to_another_ends_with_that(url: str, hub_key: KeyPair) -> None:
    async def run() -> None:
        async with replica(url, hub_key, is_replica=False):
            with psycopg.connect(url, autocommit=True) as server, psycopg.connect(url) as other:
                sessions = f"FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint = ({_HUB}) >> 32"
                waiting = asyncio.get_running_loop().run_in_executor(
                    None, other.execute, f"SELECT pg_advisory_lock({_HUB})"
                )
                await eventually(lambda: server.execute(f"SELECT 1 {sessions} AND NOT granted").fetchone())
                server.execute(f"SELECT pg_terminate_backend(pid) {sessions} AND granted")
                await waiting
                await asyncio.Event().wait()

    with pytest.raises(ConfigError, match="another hub uses the database"):
        await run()


async def test_a_replica_that_stops_stays_listed_though_its_session_was_lost(replicas: Replicas) -> None:
    row = ReplicaRow(instance="main", url="", version="", started_at=now(), seen_at=now(), term=0)
    await Replica(replicas.one.store, row, on_bus=lambda: True).enter()
    cut(replicas.url)

    async def is_listed() -> bool:
        with suppress(StorageError):
            return any(there for _, there in await replicas.other.store.read(listed))
        return False

    async with asyncio.timeout(10):
        while not await is_listed():
            pass


async def test_a_name_that_is_in_use_is_refused_before_the_replica_does_anything(
    replicas: Replicas, hub_key: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ReplicaRow(
        instance="other", url="https://one.lan:8443", version="", started_at=now(), seen_at=now(), term=0
    )
    await Replica(replicas.other.store, row, on_bus=lambda: True).enter()
    monkeypatch.setattr(limits, "NAME_WAIT_MS", 100)
    with pytest.raises(ConfigError, match=r"name other is in use by the replica at https://one\.lan:8443"):
        async with replica(replicas.url, hub_key, name="other"):
            pass


async def test_a_hub_with_the_key_of_another_is_refused_whether_or_not_that_one_runs(
    url: str, hub_key: KeyPair
) -> None:
    for is_replica in (True, False):
        async with replica(url, hub_key, is_replica=is_replica):
            pass
        with pytest.raises(ConfigError, match="is not that of the hub whose database this is"):
            async with replica(url, KeyPair.generate(), is_replica=is_replica, name="west"):
                pass
    async with replica(url, hub_key), replica(url, hub_key, name="west"):
        pass


def test_giving_the_lead_away_in_a_lost_session_is_no_error(url: str) -> None:
    database = PostgreSQL(url)
    candidacy = Candidacy(database.engine)
    assert candidacy.gain()
    cut(url)
    with pytest.raises(DatabaseError):
        candidacy.keep()
    candidacy.close()
    assert candidacy.gain()
    candidacy.close()
    database.close()


def test_who_writes_ends_the_session_of_one_that_was_stopped_within_a_batch(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = PostgreSQL(url)
    monkeypatch.setattr(limits, "DATABASE_STOPPED_MS", 100)
    monkeypatch.setattr(limits, "DATABASE_WAIT_MS", 100)
    with psycopg.connect(url, autocommit=True) as stopped:
        with suppress(psycopg.OperationalError), stopped.pipeline():
            stopped.execute(f"SELECT pg_advisory_lock({_WRITER})").fetchone()
            with database.writing.begin() as connection:
                connection.exec_driver_sql("SELECT 1")
        assert stopped.closed
    database.close()


async def test_who_leads_forgets_replicas_that_are_long_gone(replicas: Replicas) -> None:
    for name, days, term in (("old", 8, 7), ("new", 1, 6)):
        seen = now() - timedelta(days=days)
        row = ReplicaRow(instance=name, url="", version="", started_at=seen, seen_at=seen, term=term)
        await replicas.one.store.write(partial(_add, row))
    row = ReplicaRow(instance="west", url="", version="", started_at=now(), seen_at=now(), term=0)
    west = Replica(replicas.one.store, row, on_bus=lambda: True)
    leads = asyncio.Event()

    @asynccontextmanager
    async def leading(term: Term) -> AsyncIterator[None]:
        leads.set()
        yield

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(west.lead(leading))
        await leads.wait()
        running.cancel()
    rows = await replicas.other.store.read(listed)
    assert [(row.instance, row.term) for row, _ in rows] == [("west", 8), ("new", 6)]


async def test_a_replica_whose_clock_is_wrong_does_not_start_and_tells_of_it_later(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    row = ReplicaRow(instance="west", url="", version="", started_at=now(), seen_at=now(), term=0)
    west, seen = Replica(replicas.one.store, row, on_bus=lambda: True), asyncio.Queue[None]()
    await west.enter()
    monkeypatch.setattr("hub_registry.storage.replicas.now", lambda: now() + timedelta(minutes=5))
    monkeypatch.setattr(limits, "REPLICA_SEEN_S", 0.0)
    with pytest.raises(ConfigError, match="clocks of this machine and of the database differ"):
        await west.enter()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(west.stay(also=lambda: seen.put(None)))
        for _ in range(3):
            await seen.get()
        running.cancel()
    assert caplog.text.count("differ by more than 10 s. Set both by NTP") == 1


async def test_a_leader_without_the_broker_gives_the_lead_to_one_that_has_it(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEAD_OFF_BUS_S", 0.0)
    on_bus, leads = {"main": False, "other": False}, asyncio.Queue[str]()

    async def run(registry: Registry, name: str) -> None:
        @asynccontextmanager
        async def leading(term: Term) -> AsyncIterator[None]:
            await leads.put(name)
            yield

        row = ReplicaRow(instance=name, url="", version="", started_at=now(), seen_at=now(), term=0)
        hub = Replica(registry.store, row, on_bus=lambda: on_bus[name])
        await hub.enter()
        await hub.lead(leading)

    async with asyncio.TaskGroup() as tasks:
        one = tasks.create_task(run(replicas.one, "main"))
        # Without a broker for anybody, one leads all the same.
        assert await leads.get() == "main"
        on_bus["other"] = True
        other = tasks.create_task(run(replicas.other, "other"))
        assert await leads.get() == "other"
        one.cancel()
        other.cancel()


def _add(row: ReplicaRow, session: Session) -> None:
    session.add(row)


async def test_a_leader_that_was_stopped_looks_whether_it_still_leads(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    term = Term(replicas.one.store, 1)
    row = ReplicaRow(instance="east", url="", version="", started_at=now(), seen_at=now(), term=2)
    await replicas.one.store.write(partial(_add, row))
    await term.confirm_after_stop()  # within the time in which nobody else can lead
    monkeypatch.setattr(limits, "LEAD_SILENT_MS", 0)
    with pytest.raises(Superseded):
        await term.confirm_after_stop()


def test_the_proof_by_which_a_device_joined_at_the_leader_is_not_good_at_the_next_one() -> None:
    nothing: Any = None
    key, gates = KeyPair.generate(), (Gate(nothing, nothing), Gate(nothing, nothing))
    url, at = "http://home.lan/api/devices/join", time.time() - BEFORE_START_S - 2
    proof = make_proof(key, method="POST", target=url, token=None, now=at)
    headers = [(b"host", b"home.lan"), (b"dpop", proof.encode())]
    scope = {"type": "http", "method": "POST", "path": "/api/devices/join", "query_string": b""}
    request = Request(scope | {"headers": headers})
    for gate in gates:
        gate._joins._started -= 60
    gates[0].require_key(request, key.public)
    gates[1].begin_joins()
    with pytest.raises(StaleProof):
        gates[1].require_key(request, key.public)


async def test_what_was_approved_of_a_device_that_is_gone_does_not_count_for_its_namesake(
    replicas: Replicas,
) -> None:
    one, other = replicas.one, replicas.other
    one.directory.approvals.prefer("MediaSkill", ["radio"])
    await one.devices.add("Radio", owner="admin")
    await one.directory.approvals.flush(one.store)
    assert await other.directory.approvals.load(other.store) in ({"radio"}, set())
    with psycopg.connect(replicas.url, autocommit=True) as connection:
        connection.execute("DELETE FROM approval")
    assert await other.directory.approvals.load(other.store) == {"radio"}
