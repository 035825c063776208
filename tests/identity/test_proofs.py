"""The time in a proof of possession."""

import pytest

from contracts.errors import StaleProof, Unauthorized
from identity.keys import KeyPair
from identity.logins.proofs import ProofCheck, login_password, make_proof

START = 1_800_000_000.0


@pytest.mark.parametrize("set_back_s", [0, 3_600])
def test_only_proofs_since_the_start_are_good_also_when_the_clock_is_set_back(set_back_s):
    key, now = KeyPair.generate(), START
    check = ProofCheck(clock=lambda: now)
    now -= set_back_s

    def log_in(at: float) -> None:
        password = login_password(key, token="token", hub_id="home", client_id="pc", now=at)
        proof = password.partition("~")[2]
        check.check_login(proof, hub_id="home", client_id="pc", token="token", key_id=key.kid)

    log_in(now)
    for other in (now - 30, now + 90):
        with pytest.raises(StaleProof):
            log_in(other)


def test_the_proof_of_one_who_has_no_token_yet_is_good_once_and_not_remembered_for_ever():
    now = [START]
    check = ProofCheck(clock=lambda: now[0])

    def possessed(proof: str) -> None:
        check.possessed(proof, method="POST", is_target="/join".__eq__)

    for _ in range(3):
        key = KeyPair.generate()
        proof = make_proof(key, method="POST", target="/join", token=None, now=now[0])
        possessed(proof)
        with pytest.raises(Unauthorized, match="used before"):
            possessed(proof)
        assert len(check._used) == len(check._counts) == 1
        now[0] += 121


def test_a_proof_dated_ahead_is_good_once():
    now = [START]
    key, check = KeyPair.generate(), ProofCheck(clock=lambda: now[0])
    proof = login_password(key, token="t", hub_id="h", client_id="pc", now=START + 59).partition("~")[2]
    check.check_login(proof, hub_id="h", client_id="pc", token="t", key_id=key.kid)
    now[0] += 61
    with pytest.raises(Unauthorized):
        check.check_login(proof, hub_id="h", client_id="pc", token="t", key_id=key.kid)
