import pytest

from contracts.errors import Conflict, InvalidMessage, NotFound
from hub_registry.devices.devices import DeviceChange


async def test_a_device_gets_its_id_and_key_from_its_name(house):
    device = await house.devices.add("Bedroom PC", owner="admin", area="Bedroom", aliases=["the PC"])
    assert (device.id, device.key, device.area, device.names) == (
        "bedroom_pc",
        "bedroom_pc",
        "Bedroom",
        ("Bedroom PC", "the PC"),
    )


async def test_renaming_changes_the_key_and_never_the_id(house):
    await house.devices.add("Bedroom PC", owner="admin")
    renamed = await house.devices.change("bedroom_pc", DeviceChange(name="Office PC"))
    assert (renamed.id, renamed.key, renamed.display_name) == ("bedroom_pc", "office_pc", "Office PC")


async def test_neither_an_id_nor_a_key_ever_means_two_devices(house):
    await house.devices.add("Lamp", owner="admin")
    await house.devices.change("lamp", DeviceChange(name="Big lamp"))
    second = await house.devices.add("Lamp", owner="admin")
    assert (second.id, second.key) == ("lamp_2", "lamp_2")


async def test_the_id_of_a_removed_device_is_never_given_out_again(house):
    device = await house.devices.add("Radio", owner="admin")
    await house.devices.remove(device.id)
    again = await house.devices.add("Radio", owner="admin")
    assert (again.id, again.key) == ("radio_2", "radio")


async def test_a_name_in_use_is_refused_in_any_case_and_as_an_alias(house):
    await house.devices.add("TV", owner="admin", aliases=["Telly"])
    for name in ("tv", "TELLY"):
        with pytest.raises(Conflict, match="'TV'"):
            await house.devices.add(name, owner="admin")
    other = await house.devices.add("Radio", owner="admin")
    with pytest.raises(Conflict):
        await house.devices.change(other.id, DeviceChange(aliases=["tv"]))


async def test_a_change_leaves_what_it_does_not_name_and_clears_what_is_empty(house):
    await house.devices.add("TV", owner="admin", area="Living room", floor="1", aliases=["Telly"])
    changed = await house.devices.change("tv", DeviceChange(area=""))
    assert (changed.area, changed.floor, changed.aliases, changed.key) == (None, "1", ("Telly",), "tv")


@pytest.mark.parametrize("name", ["", "   ", "x" * 65])
async def test_a_name_that_is_none_is_refused(house, name):
    with pytest.raises(InvalidMessage):
        await house.devices.add(name, owner="admin")


async def test_what_does_not_exist_is_named(house):
    with pytest.raises(NotFound, match="fridge"):
        await house.devices.change("fridge", DeviceChange(area="Kitchen"))
    with pytest.raises(NotFound, match="nobody"):
        await house.devices.add("TV", owner="nobody")


@pytest.mark.parametrize("text", ["evil\x1b[2J", "two\nlines", "\u202egnirts", "x" * 65])
async def test_a_name_that_a_screen_cannot_show_is_refused(house, text):
    device = await house.devices.add("TV", owner="admin")
    for change in (
        DeviceChange(name=text),
        DeviceChange(aliases=[text]),
        DeviceChange(area=text),
        DeviceChange(floor=text),
    ):
        with pytest.raises(InvalidMessage):
            await house.devices.change(device.id, change)
    with pytest.raises(InvalidMessage):
        await house.devices.add(text, owner="admin")
