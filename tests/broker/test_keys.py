from broker.keys import KeyPair


def test_no_fingerprint_is_taken_for_an_option_on_a_command_line() -> None:
    # Of 1,000 plain keys some 16 would begin with a dash.
    assert not any(KeyPair.generate().kid.startswith("-") for _ in range(1000))
