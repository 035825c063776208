import re
from pathlib import Path

from identity.files import make_private_directory
from identity.keys import KeyPair


def test_no_fingerprint_is_taken_for_an_option_on_a_command_line() -> None:
    # Of 1,000 plain keys some 16 would begin with a dash.
    assert not any(KeyPair.generate().kid.startswith("-") for _ in range(1000))


def test_a_derived_password_is_always_the_same_and_says_nothing_about_others(tmp_path: Path) -> None:
    key = KeyPair.load_or_create(tmp_path / "key.pem")
    again = KeyPair.load(tmp_path / "key.pem")
    hub = key.secret("mosquitto hub main")
    assert hub.get_secret_value() == again.secret("mosquitto hub main").get_secret_value()
    others = [key.secret("mosquitto admin"), KeyPair.generate().secret("mosquitto hub main")]
    assert hub.get_secret_value() not in {each.get_secret_value() for each in others}
    assert re.fullmatch(r"[\w-]{43}", hub.get_secret_value())
    assert hub.get_secret_value() not in repr(hub)


def test_a_directory_that_was_open_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert make_private_directory(tmp_path).stat().st_mode & 0o777 == 0o700
