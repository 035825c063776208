"""The pages of the home and its devices: a lamp is switched, a device joins, runs a skill, and is revoked."""

import re
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.e2e.house import PATIENCE_S, wait_for
from tests.web.conftest import Visitor, picture_each_way

Visit = Callable[..., Visitor]
Picture = Callable[[Page, str], Path]

SKILL = '''
from typing import Annotated, Literal

from pydantic import BaseModel, Field, SecretStr

from spoke import Skill, Unit, skill_method


class KettleSkill(Skill):
    """The kettle in the kitchen."""

    area = "Kitchen"

    class Settings(BaseModel):
        host: str
        key: SecretStr
        sound: bool = True

    @skill_method(sentences={"en": ["make [me] some tea"]})
    def brew(
        self,
        tea: Literal["green", "black"],
        celsius: Annotated[int, Field(ge=40, le=100), Unit("°C")] = 95,
        extras: list[str] = [],
        name: Annotated[str, Field(max_length=5)] = "",
    ) -> str:
        """Brew tea.

        Args:
            extras: What goes in.
        """
        return f"{tea} at {celsius} with {' and '.join(extras) or 'nothing'}, {self.settings.sound}"

    @skill_method(destructive=True, confirm=True)
    def drain(self, litres: float = 1.5) -> str:
        """Pour all the water away."""
        return f"{litres} litres are gone"
'''


def test_a_lamp_is_switched_on_a_phone(page_of: Visit, picture: Picture, lamp_device: str) -> None:
    visitor = page_of(phone=True)
    lamp = {"device": lamp_device, "skill": "LampSkill", "method": "status"}
    # Other tests switch the same lamp.
    visitor.house.ask("/api/skills/call", {**lamp, "method": "turn_off"})
    device = next(each for each in visitor.house.ask("/api/devices") if each["name"] == lamp_device)
    visitor.house.client.request("PATCH", f"/api/devices/{device['id']}", {"area": "Hall"})
    page = visitor.open("/")
    switch = page.get_by_role("switch", name=f"Lamp, {lamp_device}")
    expect(switch).not_to_be_checked()
    switch.click()
    expect(page.get_by_role("link", name="Lamp Hall")).to_be_visible()
    assert visitor.house.ask("/api/skills/call", lamp)["result"]["is_on"]
    picture(page, "home-lamp-phone")
    visitor.house.ask("/api/skills/call", {**lamp, "method": "set_brightness", "kwargs": {"percent": 40}})
    expect(page.get_by_text("40 %")).to_be_visible()
    visitor.house.ask(
        "/api/skills/call",
        {
            "device": "hub",
            "skill": "WatcherSkill",
            "method": "set_timer",
            "kwargs": {"minutes": 9, "text": "Tea"},
        },
    )
    # Also where the page was open already.
    expect(page.get_by_text("Tea", exact=True)).to_be_visible()
    german = page_of(locale="de-DE").open("/")
    expect(german.get_by_role("switch", name=f"Lampe, {lamp_device}")).to_be_checked()
    expect(german.get_by_role("slider", name="Helligkeit")).to_be_visible()
    picture_each_way(page_of, picture, "/", "home", "Tea")
    visitor.house.ask("/api/skills/call", {**lamp, "method": "turn_off"})
    expect(switch).not_to_be_checked()
    expect(page.get_by_text("Nothing is on")).to_be_visible()
    page.get_by_role("button", name="Pause Tea").click()
    page.get_by_role("button", name="Resume Tea").click()
    expect(page.get_by_role("button", name="Pause Tea")).to_be_visible()
    page.get_by_role("button", name="Cancel Tea").click()
    expect(page.get_by_role("button", name="Cancel Tea")).to_have_count(0)


def test_a_device_is_added_joins_runs_a_skill_and_is_revoked(
    page_of: Visit, picture: Picture, tmp_path: Path
) -> None:
    visitor = page_of()
    house, page = visitor.house, visitor.open("/devices")
    page.get_by_role("button", name="Add a device").click()
    page.get_by_role("button", name="Make a token").click()
    page.get_by_label("Name", exact=True).fill("Kitchen Pi that has a long name")
    page.get_by_label("Room").fill("Kitchen")
    page.get_by_role("button", name="Add", exact=True).click()
    line = page.get_by_role("region", name="Command")
    picture(page, "device-invitation")
    token, *command = shlex.split(line.inner_text())
    assert command[:3] == ["strawberry", "spoke", "run"]
    page.get_by_role("button", name="Done").click()
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "kettle.py").write_text(SKILL)
    # What a person pastes on the other machine.
    home, variable = tmp_path / "kitchen", token.partition("=")
    (home / "nodes" / "radio").mkdir(parents=True)
    (home / "nodes" / "radio" / "node.yaml").write_text("command: sh -c 'echo on the air; sleep 600'\n")
    given = {variable[0]: variable[2]}
    house.start("kitchen", *command[1:], "--skills", str(tmp_path / "skills"), home=home, **given)
    try:
        expect(page.get_by_text("Kitchen Pi that has a long name is here")).to_be_visible()
        page.get_by_role("link", name="Open its page").click()
        _runs_a_skill(page, picture)
        _reads_the_log_of_a_node(page)
        _pictures(page_of, picture)
        visitor.open("/devices/kitchen_pi_that_has_a_long_name")
        page.get_by_role("button", name="More", exact=True).first.click()
        page.get_by_text("Revoke …").click()
        page.get_by_role("button", name="Revoke", exact=True).click()
        expect(page.locator(".sb-page").get_by_text("revoked", exact=True)).to_be_visible()
        house.ended("kitchen")
    finally:
        house.kill("kitchen")
        house.client.request("DELETE", "/api/devices/kitchen_pi_that_has_a_long_name")
    expect(page.get_by_text("This device was removed")).to_be_visible()


def _pictures(page_of: Visit, picture: Picture) -> None:
    path = "/devices/kitchen_pi_that_has_a_long_name"
    picture_each_way(page_of, picture, "/devices", "devices", "Kitchen Pi")
    picture_each_way(page_of, picture, path, "device", "Kettle")


def _runs_a_skill(page: Page, picture: Picture) -> None:
    page.get_by_role("button", name="Approve all").click()
    expect(page.get_by_text("To approve")).to_have_count(0)
    page.get_by_role("heading", name="Kettle").click()
    # It cannot be used before it has its settings.
    expect(page.get_by_text("a setting is missing").first).to_be_visible()
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("switch", name="Sound").click()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("This is needed.")).to_have_count(2)
    page.get_by_label("Host").fill("kettle.lan")
    page.get_by_label("Key").fill("s3cret")
    picture(page, "device-settings")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog", name=re.compile("settings"))).to_contain_text("••••••")
    page.get_by_role("button", name="Run it").click()
    expect(page.get_by_text("Saved")).to_be_visible()
    page.get_by_role("button", name="Run brew").click()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("This is needed.").first).to_be_visible()
    page.get_by_label("Tea").click()
    page.get_by_role("option", name="green").click()
    page.get_by_label("Extras").fill("milk\nsugar")
    # Letter by letter: the choice before it takes the focus back from no one who types.
    page.get_by_label("Name").press_sequentially("far too long", delay=40)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("is too long")).to_be_visible()
    picture(page, "device-form")
    page.get_by_label("Name").fill("Ada")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("green at 95 with milk and sugar, False").first).to_be_visible()
    page.get_by_role("button", name="Close").click()
    # What a person must confirm is shown with what is really sent.
    page.get_by_role("button", name="Run drain").click()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("dialog", name="Pour all the water away?").locator("dd")).to_have_text(
        ["1.5", "Kitchen Pi that has a long name", "KettleSkill.drain"]
    )
    picture(page, "device-confirmation")
    page.get_by_role("button", name="Run it").click()
    expect(page.get_by_text("1.5 litres are gone").first).to_be_visible()
    page.get_by_role("button", name="Close").click()


def _reads_the_log_of_a_node(page: Page) -> None:
    program = page.get_by_role("row", name="radio")
    program.get_by_role("button", name="Start").click()
    expect(program).to_contain_text("running")
    program.get_by_role("button", name="Log").click()
    log = page.get_by_role("dialog", name="Log of radio")
    expect(log.get_by_role("button", name="Read again")).to_be_visible()

    def read() -> bool:
        log.get_by_role("button", name="Read again").click()
        return log.get_by_text("on the air").is_visible()

    wait_for(read, what="the output of the program")
    log.get_by_role("button", name="Close").click()
    program.get_by_role("button", name="Stop").click()
    expect(program).to_contain_text("stopped")


def test_a_device_that_shows_a_code_is_let_in_by_its_fingerprint(page_of: Visit, tmp_path: Path) -> None:
    visitor = page_of()
    house, page = visitor.house, visitor.open("/devices")
    house.start("porch", "spoke", "join", house.url, "--name", "Porch", home=tmp_path / "porch")
    try:
        screen = re.compile(r"code +(\S+)\n(?:.*\n)*? *fingerprint +(\S+)\n")
        shown = wait_for(lambda: screen.search(house.log("porch")) or house.ended("porch"), what="the code")
        assert isinstance(shown, re.Match)
        code, fingerprint = shown.groups()
        page.get_by_role("button", name="Enter a code").click()
        page.get_by_label("Code").fill(code)
        page.get_by_role("button", name="Look").click()
        expect(page.get_by_text(fingerprint, exact=True)).to_be_visible()
        page.get_by_role("button", name="It is the same: let it in").click()
        expect(page.get_by_text("Porch joins within seconds")).to_be_visible()
        assert house.processes["porch"].wait(timeout=PATIENCE_S) == 0
    finally:
        house.kill("porch")
        house.ask("/api/devices/porch/revoke", {})


def test_skills_are_found_and_a_sentence_is_tried(page_of: Visit, picture: Picture) -> None:
    visitor = page_of()
    page = visitor.open("/skills")
    page.get_by_role("textbox", name="Find a sentence").or_(page.get_by_role("searchbox")).first.fill(
        "lamp on"
    )
    expect(page.get_by_role("listitem").filter(has_text="turn on the lamp").first).to_be_visible()
    page.get_by_text("For developers").click()
    page.get_by_role("searchbox", name="Words").fill("switch a lamp")
    expect(page.get_by_text("LampSkill.turn_on() -> str")).to_be_visible()
    page.get_by_role("textbox", name="Sentence").fill("dim the lamp to 30 percent")
    page.get_by_role("button", name="Try").click()
    expect(page.get_by_role("region", name="Arguments")).to_contain_text('"percent": 30')
    picture(page, "skills-sentence")
    page.get_by_role("button", name="More about LampSkill.turn_on").click()
    expect(page.get_by_role("region", name="As the assistant reads it")).to_contain_text("def turn_on()")
    picture(page, "skill")
    picture_each_way(page_of, picture, "/skills", "skills", "Strawberry")


def test_an_integration_is_turned_on_with_its_settings_and_off(
    page_of: Visit, picture: Picture, lamp_device: str
) -> None:
    path = f"/devices/{lamp_device.lower()}"
    page = page_of().open(path)
    page.get_by_role("switch", name="Wake-on-LAN").click()
    form = page.get_by_role("dialog", name="Settings of Wake")
    expect(form).to_be_visible()
    form.get_by_role("button", name="Cancel").click()
    picture_each_way(page_of, picture, path, "integrations", "Wake-on-LAN")
    page.get_by_role("switch", name="Wake-on-LAN").click()
    expect(page.get_by_role("heading", name="Wake computers")).to_have_count(0)


def _tea(folder: Path, version: str, *methods: str) -> Path:
    """Make an archive of a skill with methods that only read."""
    code = "from strawberry_skills import Skill, skill_method\n\nclass TeaSkill(Skill):\n"
    for method in methods:
        code += f"    @skill_method(read_only=True)\n    def {method}(self) -> int:\n        return 1\n"
    with zipfile.ZipFile(folder / f"tea-{version}.zip", "w") as archive:
        archive.writestr("tea/tea.py", code)
        archive.writestr("tea/pyproject.toml", f'[project]\nname = "tea"\nversion = "{version}"\n')
    return folder / f"tea-{version}.zip"


def test_a_skill_is_uploaded_where_the_device_allows_it_updated_and_removed(
    page_of: Visit, picture: Picture, lamp_device: str, tmp_path: Path
) -> None:
    visitor, path = page_of(), f"/devices/{lamp_device.lower()}"
    page = visitor.open(path)
    expect(page.get_by_text("in the menu of its Strawberry icon")).to_be_visible()
    assert visitor.house.cli("skills", "uploads", "on").returncode == 0
    page.reload()
    field = page.get_by_label("Archive of a skill")
    field.set_input_files(_tea(tmp_path, "1.0", "cups"))
    page.get_by_role("button", name="Install", exact=True).click()
    dialog = page.get_by_role("dialog", name="Install tea 1.0?")
    expect(dialog).to_contain_text("+ TeaSkill.cups: read_only")
    picture(page, "install-skill")
    dialog.get_by_role("button", name="Install").click()
    expect(page.get_by_role("heading", name="Tea", exact=True)).to_be_visible()

    field.set_input_files(_tea(tmp_path, "1.1", "cups", "empty"))
    page.get_by_role("button", name="Install", exact=True).click()
    dialog = page.get_by_role("dialog", name="Update to tea 1.1?")
    expect(dialog).to_contain_text("+ TeaSkill.empty: read_only")
    expect(dialog).not_to_contain_text("TeaSkill.cups")
    dialog.get_by_role("button", name="Update").click()
    expect(page.get_by_text("tea 1.1")).to_be_visible()
    picture_each_way(page_of, picture, path, "installed-skills", "tea 1.1")
    page.get_by_role("button", name="Update tea").click()
    expect(page.get_by_role("dialog")).to_contain_text("Its files are those that are installed.")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Remove tea").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_role("heading", name="Tea", exact=True)).to_have_count(0)
    assert visitor.house.cli("skills", "uploads", "off").returncode == 0
    assert "upload_skill" in visitor.house.cli("audit", "InstallationSkill").stdout
