from agent_core.skills.arguments import arguments_digest
from contracts.rpc import Actor
from hub_registry.access.audit import Audit, CallRecord
from hub_registry.storage.tables import now


def record(call: str, user: str = "admin", outcome: str = "result") -> CallRecord:
    return CallRecord(
        at=now(),
        call=call,
        actor=Actor(user=user, agent="assistant"),
        device="tv",
        skill="MediaSkill",
        method="play",
        arguments=arguments_digest({"song": "secret song"}),
        outcome=outcome,
    )


async def test_calls_are_listed_latest_first_and_by_user(store):
    audit = Audit(store)
    mine, theirs = record("1"), record("2", user="ada", outcome="offline")
    await audit.record_all([mine, theirs])
    assert await audit.latest() == [theirs, mine]
    assert await audit.latest(user="ada") == [theirs]
    assert await audit.latest(limit=1) == [theirs]


async def test_the_arguments_themselves_are_nowhere_in_the_database(store, database):
    await Audit(store).record(record("1"))
    written = b"".join(path.read_bytes() for path in database.parent.glob("hub.db*"))
    assert b"MediaSkill" in written
    assert b"secret song" not in written
