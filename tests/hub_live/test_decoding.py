"""Payloads as values, also those that were made to break a decoder."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import ConfigError
from contracts.wire import Json
from hub_live.topics import Sample
from hub_live.topics.decoding import Decoding, encode, guess
from hub_live.topics.protobuf import load_patterns

TEXT = FieldDescriptorProto.TYPE_STRING
OPTIONAL, REPEATED = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b"", None),
        (b'{"state": {"temperature": 21.5}}', {"state": {"temperature": 21.5}}),
        (b" [1, 2] ", [1, 2]),
        (b"21.5", 21.5),
        (b"-3", -3),
        (b"+21.5\n", 21.5),
        (b".5", 0.5),
        (b"true", True),
        (b"null", None),
        (b"ON", "ON"),
        (b"open", "open"),
        (b"007", "007"),
        (b"21.5 \xc2\xb0C", "21.5 °C"),
        (b"{no json", "{no json"),
        (b"\xff\xd8\xff\xe0 jpeg", {"blob": "image/jpeg", "bytes": 9}),
        (b"\x89PNG\r\n\x1a\n....", {"blob": "image/png", "bytes": 12}),
        (b"\0\0\0\x01g..", {"blob": "video/h264", "bytes": 7}),
        (b"\x80\x81", {"blob": "application/octet-stream", "bytes": 2}),
        (b"\x01\x02", {"blob": "application/octet-stream", "bytes": 2}),
        # Half of a surrogate pair fits into no answer, and a whole one does.
        (rb'{"\uDAbc": ["\ud800 \ud83d\ude00"]}', {"?": ["? 😀"]}),
        # What is no finite number is none.
        (b"NaN", "NaN"),
        (b'{"t": NaN, "u": -Infinity, "v": 1e999, "w": 1}', {"t": None, "u": None, "v": None, "w": 1}),
        (b"1e999", None),
        (b"9" * 18, int("9" * 18)),
        (b"9" * 30, 1e30),
        (b"9" * 5_000, None),
        (b'{"a": ' * 64 + b"1" + b"}" * 64, json.loads('{"a": ' * 64 + "1" + "}" * 64)),
        (b"[" * 65 + b"]" * 65, "[" * 65 + "]" * 65),
        (b"[" * 500_000, "[" * 500_000),
        (b"[]" * 500_000, "[]" * 500_000),
        (b"[" + b"[]," * 50_000 + b"1]", "[" + "[]," * 50_000 + "1]"),
    ],
)
def test_values(payload: bytes, value: Json) -> None:
    assert guess(payload) == value


@given(st.binary() | st.text().map(str.encode) | st.from_regex(rb'[\[{"\-0-9.eE,:tfnN ]*', fullmatch=True))
def test_whatever_arrives_is_finite_json(payload: bytes) -> None:
    json.dumps(guess(payload), allow_nan=False, ensure_ascii=False).encode()


@settings(max_examples=50)
@given(st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False), st.lists))
def test_what_is_encoded_is_decoded(value: Json) -> None:
    assert guess(encode(value)) == value


def test_a_message_is_decoded_once_for_all_who_get_it() -> None:
    sample = Sample("bus", "a", 0, b"[1]", decode=Decoding())
    assert sample.value is sample.value


def descriptors(**fields: tuple[int, int, str]) -> FileDescriptorSet:
    """A file with the message ``home.Meter`` that has these fields: type, label, name of another type."""
    file = FileDescriptorProto(name="home.proto", package="home", syntax="proto3")
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    meter = file.message_type.add(name="Meter")
    for number, (name, (kind, label, other)) in enumerate(fields.items(), 1):
        meter.field.add(name=name, number=number, type=kind, label=label, type_name=other or None)
    return FileDescriptorSet(file=[file])


METER = descriptors(
    watts=(FieldDescriptorProto.TYPE_DOUBLE, OPTIONAL, ""),
    total=(FieldDescriptorProto.TYPE_UINT64, OPTIONAL, ""),
    colour=(FieldDescriptorProto.TYPE_ENUM, OPTIONAL, ".home.Colour"),
    names=(TEXT, REPEATED, ""),
    raw=(FieldDescriptorProto.TYPE_BYTES, OPTIONAL, ""),
    inner=(FieldDescriptorProto.TYPE_MESSAGE, OPTIONAL, ".home.Meter"),
    more=(FieldDescriptorProto.TYPE_MESSAGE, REPEATED, ".home.Meter"),
)


@pytest.fixture
def meter() -> Any:
    pool = DescriptorPool()
    pool.Add(METER.file[0])
    return GetMessageClass(pool.FindMessageTypeByName("home.Meter"))


@pytest.fixture(scope="module")
def decode(tmp_path_factory: pytest.TempPathFactory) -> Decoding:
    file = tmp_path_factory.mktemp("descriptors") / "home.desc"
    file.write_bytes(METER.SerializeToString())
    return Decoding(load_patterns([file], {"meters/+/raw": "home.Meter"}))


def test_protobuf_by_topic(decode: Decoding, meter: Any) -> None:
    message = meter(watts=230.5, total=2**60, colour=1, names=["a"], raw=b"\xff\xd8\xff", inner=meter())
    default = {"watts": 0.0, "total": 0, "colour": "RED", "names": [], "more": []}
    empty = {**default, "raw": {"blob": "application/octet-stream", "bytes": 0}}
    assert decode("meters/1/raw", message.SerializeToString()) == {
        "watts": 230.5,
        "total": 2**60,
        "colour": "BLUE",
        "names": ["a"],
        "raw": {"blob": "application/octet-stream", "bytes": 3},
        "inner": empty,
        "more": [],
    }
    assert decode("meters/1/text", b"21.5") == 21.5
    assert decode("meters/1/raw", meter(watts=float("nan")).SerializeToString())["watts"] is None


def test_hostile_protobuf_is_described(decode: Decoding, meter: Any) -> None:
    deep = b""
    for _ in range(90):
        deep = (
            b"\x32"
            + (bytes((len(deep),)) if len(deep) < 128 else bytes((len(deep) & 127 | 128, len(deep) >> 7)))
            + deep
        )
    for payload in (b"\xff" * 10, b"\x08", deep, b"\x3a\x00" * 300_000, b"\x22\x02\xff\xfe"):
        assert decode("meters/1/raw", payload) == {"blob": "application/x-protobuf", "bytes": len(payload)}


@given(payload=st.binary())
def test_any_bytes_as_protobuf_are_finite_json(decode: Decoding, payload: bytes) -> None:
    json.dumps(decode("meters/1/raw", payload), allow_nan=False)


def test_mistakes_in_the_settings_are_named(tmp_path: Path) -> None:
    good, bad = tmp_path / "home.desc", tmp_path / "bad.desc"
    good.write_bytes(METER.SerializeToString())
    bad.write_bytes(b"syntax = proto3")
    with pytest.raises(ConfigError, match="did you mean"):
        load_patterns([good], {"a": "home.Metre"})
    with pytest.raises(ConfigError, match="not a topic filter"):
        load_patterns([good], {"a/#/b": "home.Meter"})
    with pytest.raises(ConfigError, match="not a descriptor set"):
        load_patterns([bad], {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_patterns([tmp_path / "missing.desc"], {})
