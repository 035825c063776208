from hypothesis import given
from hypothesis import strategies as st

from contracts.names import device_key, is_device_id


def test_a_key_is_what_a_person_would_write() -> None:
    assert device_key("Bedroom PC") == "bedroom_pc"
    assert device_key("Küche") == "kuche"
    assert device_key("3D Printer") == "device_3d_printer"


def test_a_taken_or_reserved_name_gets_a_number() -> None:
    assert device_key("Bedroom PC", taken={"bedroom_pc"}) == "bedroom_pc_2"
    assert device_key("Hub") == "hub_2"
    assert device_key("class") == "class_2"


@given(st.text(), st.sets(st.text(max_size=3), max_size=5))
def test_any_display_name_gives_a_valid_key(display_name: str, taken: set[str]) -> None:
    key = device_key(display_name, taken)
    assert is_device_id(key)
    assert key not in taken
