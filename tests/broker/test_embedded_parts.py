"""The parts of the embedded broker that can be looked at alone."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from broker.embedded.authentication import CompiledRights, Revocations
from broker.embedded.frames import Frame, FrameBuffer, Publication, read_publish, write_publish
from broker.embedded.retained import Retained, RetainedStore
from broker.embedded.topic_tree import TopicTree
from broker.embedded.websocket import WebSocketPeer
from contracts import access
from contracts.access import Principal, Right
from contracts.claims import Claims, PrincipalKind
from contracts.devices.presence import Revocation
from identity import tokens

levels = st.sampled_from(["devices", "pc", "status", "skills", "hub", "users", "anna", "$SYS", "", "a+b"])
topics = st.lists(levels, min_size=1, max_size=5).map("/".join)
filters = st.tuples(
    st.lists(levels | st.just("+"), max_size=4), st.sampled_from([["#"], ["+"], ["pc"], ["devices"]])
).map(lambda parts: "/".join([*parts[0], *parts[1]]))


@given(granted=st.lists(filters, max_size=4), topic=topics)
def test_compiled_rights_are_the_rights_of_the_contracts(granted: list[str], topic: str) -> None:
    for action in ("publish", "receive"):
        rights = tuple(Right(action, each) for each in granted)
        compiled = CompiledRights(rights)
        expected = access.allowed(rights, action, topic)
        assert (compiled.may_publish(topic), compiled.may_receive(topic)) == (
            (expected, False) if action == "publish" else (False, expected)
        )


@given(kind=st.sampled_from(get_args(PrincipalKind)), chat=st.booleans(), topic=topics)
def test_compiled_rights_of_every_kind_are_the_rights_of_the_contracts(
    kind: PrincipalKind, chat: bool, topic: str
) -> None:
    rights = access.rights(Principal(kind, "pc", owner="anna", chat=chat))
    compiled = CompiledRights(rights)
    assert compiled.may_publish(topic) == access.allowed(rights, "publish", topic)
    assert compiled.may_receive(topic) == access.allowed(rights, "receive", topic)


@given(entered=st.lists(filters, max_size=8, unique=True), topic=topics)
def test_a_tree_finds_the_filters_that_cover_a_topic(entered: list[str], topic: str) -> None:
    tree: TopicTree[str] = TopicTree()
    for each in entered:
        tree.set(each, each)
    assert sorted(tree.of_topic(topic)) == sorted(each for each in entered if access.covers(each, topic))


@given(entered=st.lists(topics, max_size=8, unique=True), filter_=filters)
def test_a_tree_finds_the_topics_that_a_filter_covers(entered: list[str], filter_: str) -> None:
    tree: TopicTree[str] = TopicTree()
    for each in entered:
        tree.set(each, each)
    assert sorted(tree.of_filter(filter_)) == sorted(each for each in entered if access.covers(filter_, each))


@given(entered=st.lists(filters, max_size=8, unique=True), data=st.data())
def test_what_is_removed_from_a_tree_is_gone_and_all_else_is_there(
    entered: list[str], data: st.DataObject
) -> None:
    tree: TopicTree[str] = TopicTree()
    for each in entered:
        tree.set(each, each)
    gone = data.draw(st.lists(filters | st.sampled_from(entered), max_size=8) if entered else st.just(["x"]))
    for each in gone:
        tree.remove(each)
    assert {each for each in entered if tree.get(each)} == set(entered) - set(gone)
    for each in entered:
        tree.remove(each)
    assert not tree._root.children


publications = st.builds(
    Publication,
    topic=st.text(
        st.characters(exclude_characters="+#\0", exclude_categories=["Cs"]), min_size=1, max_size=50
    ),
    payload=st.binary(max_size=300),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    packet_id=st.integers(1, 65535),
)


@given(messages=st.lists(publications, max_size=5), size=st.integers(1, 40))
def test_packets_are_the_same_however_the_bytes_come(messages: list[Publication], size: int) -> None:
    stream = b"".join(
        write_publish(m.topic.encode(), m.payload, qos=m.qos, retain=m.retain, packet_id=m.packet_id)
        for m in messages
    )
    buffer, got = FrameBuffer(1000), list[Frame]()
    for start in range(0, len(stream), size):
        buffer.feed(stream[start : start + size])
        while (frame := buffer.take()) is not None:
            got.append(frame)
    expected = [(m.topic, m.payload, m.qos, m.retain, m.packet_id if m.qos else 0) for m in messages]
    assert [
        (p.topic, p.payload, p.qos, p.retain, p.packet_id) for p in (read_publish(frame) for frame in got)
    ] == expected


def claims(subject: str, kind: PrincipalKind = "device") -> Claims:
    return tokens.make_claims(hub_id="h", subject=subject, kind=kind, owner="", scopes=(), lifetime_s=60)


def test_what_is_revoked_is_read_back_and_what_is_too_old_to_matter_is_dropped(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    revoked, present, other = claims("tv"), claims("pc"), claims("pc")
    revocations = Revocations.load(tmp_path / "revoked.json")
    revocations.add(
        Revocation(tokens=["ancient"], only={"device/old": ""}, before=now - timedelta(days=3 * 366))
    )
    revocations.add(Revocation(tokens=[revoked.jti], only={"device/pc": other.jti}, before=now))
    revocations.add(Revocation(only={"device/pc": present.jti}, before=now))
    revocations.save()
    again = Revocations.load(tmp_path / "revoked.json")
    assert "ancient" not in (tmp_path / "revoked.json").read_text()
    assert "device/old" not in (tmp_path / "revoked.json").read_text()
    assert again.covers(revoked)
    assert again.covers(other)
    assert not again.covers(present)


def test_revocations_that_come_while_others_are_written_harm_nothing(tmp_path: Path) -> None:
    moment = datetime.now(UTC)
    known = {f"token-{number}": moment.timestamp() for number in range(20_000)}
    revocations = Revocations(tmp_path / "revoked.json", tokens=known, only={})
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(revocations.save)
        while not writing.done():
            revocations.add(Revocation(tokens=["another"], before=moment))
    writing.result()
    assert len(json.loads((tmp_path / "revoked.json").read_text())["tokens"]) >= 20_000


def test_one_principal_says_nothing_about_another_of_its_name_or_another_kind(tmp_path: Path) -> None:
    revocations = Revocations.load(tmp_path / "revoked.json")
    revocations.add(Revocation(only={"device/pc": ""}, before=datetime.now(UTC)))
    assert revocations.covers(claims("pc"))
    assert not revocations.covers(claims("pc", "client"))
    assert not revocations.covers(claims("pc2"))


def test_a_revoked_token_is_refused_also_where_it_is_the_one_of_its_device(tmp_path: Path) -> None:
    revocations, present, now = Revocations.load(tmp_path / "revoked.json"), claims("pc"), datetime.now(UTC)
    revocations.add(Revocation(only={"device/pc": present.jti}, before=now))
    revocations.add(Revocation(tokens=[present.jti], before=now))
    assert revocations.covers(present)


def test_a_value_that_is_published_again_counts_once(tmp_path: Path) -> None:
    store = RetainedStore(tmp_path / "retained.db")
    store.load()
    for number in range(20):
        store.put(Retained(f"devices/pc/state/S/{number % 2}", b"x" * 100, 1, "device pc"))
    assert store.share_with(Retained("devices/pc/state/S/c", b"x", 1, "device pc")).size < 400
    store.close()


def test_the_file_of_the_first_version_is_still_read(tmp_path: Path) -> None:
    gone = claims("pc")
    (tmp_path / "revoked.json").write_text(json.dumps({"tokens": {gone.jti: time.time()}, "principals": {}}))
    revocations = Revocations.load(tmp_path / "revoked.json")
    assert revocations.covers(gone)
    assert not revocations.covers(claims("pc"))


def web_socket(frames: bytes) -> WebSocketPeer:
    """Return a client that sends its request and these frames at once, and then hangs up."""
    lines = ["GET / HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13"]
    request = "\r\n".join([*lines, "Sec-WebSocket-Protocol: mqtt", "", ""]).encode()
    sent = [b"", request + frames]

    async def come(**_: int) -> bool:
        return True

    async def read() -> bytes:
        return sent.pop()

    stream: Any = SimpleNamespace(address="", host="", waiting=0, open=come, read=read)
    stream.write = stream.flush = lambda *_: None
    return WebSocketPeer(stream, hosts=(), most=1000)


async def test_others_have_their_turn_while_a_websocket_sends_thousands_of_short_frames() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    peer = web_socket(b"\x89\x80abcd" * 8_000)
    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(others())
        assert await peer.open(most=1000)
        assert not await peer.read()
        counting.cancel()
    assert turns > 5


async def test_what_a_websocket_sent_first_is_handed_on_before_the_rest_is_taken_apart() -> None:
    peer = web_socket(b"\x82\x81\0\0\0\0x" * 8_000)
    assert await peer.open(most=1000)
    pieces = [await peer.read()]
    while pieces[-1]:
        pieces.append(await peer.read())
    assert b"".join(pieces) == b"x" * 8_000
    assert len(pieces) > 10
