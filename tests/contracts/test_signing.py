import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.devices.rpc import Control
from contracts.errors import BadSignature
from identity.envelope import Seal, unseal
from identity.keys import KeyPair

TOPIC = "devices/lamp_pi/control/0192d3a4-0000-7000-8000-000000000000"
KEY = KeyPair.generate()
SEAL = Seal("hub-1", KEY)
MESSAGE = Control(kind="start", id="0192d3a4-0000-7000-8000-000000000000", instance="main", epoch=7)
SEALED = SEAL.seal(TOPIC, MESSAGE)


def test_a_sealed_message_is_one_flat_json_object_that_ends_with_its_signature() -> None:
    fields = json.loads(SEALED)
    assert list(fields)[-1] == "sig"
    assert len(fields["sig"]) == 86
    assert fields["kind"] == "start"


def test_what_was_sealed_is_read_back() -> None:
    assert Control.model_validate_json(unseal("hub-1", TOPIC, SEALED, KEY.public)) == MESSAGE


@pytest.mark.parametrize(
    ("hub", "topic", "key"),
    [
        ("hub-2", TOPIC, KEY),
        ("hub-1", TOPIC.replace("lamp", "lock"), KEY),
        ("hub-1", TOPIC, KeyPair.generate()),
    ],
    ids=["another hub", "another topic", "another key"],
)
def test_a_signature_holds_for_its_hub_topic_and_key_only(hub: str, topic: str, key: KeyPair) -> None:
    with pytest.raises(BadSignature):
        unseal(hub, topic, SEALED, key.public)


@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
def test_no_byte_can_be_changed(position: int, change: int) -> None:
    forged = bytearray(SEALED)
    forged[position] ^= change
    with pytest.raises(BadSignature):
        unseal("hub-1", TOPIC, bytes(forged), KEY.public)


@given(st.binary(max_size=300))
def test_bytes_that_were_never_signed_are_refused(payload: bytes) -> None:
    with pytest.raises(BadSignature):
        unseal("hub-1", TOPIC, payload, KEY.public)
