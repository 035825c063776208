"""Watchers, captures, memory and agents in the browser, as a person uses them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, Page, expect

from deploy.cli.client import HubClient
from tests.e2e.house import House, Spoke, wait_for
from tests.e2e.test_watchers import TOPIC
from tests.model_server import Reply, Says, ScriptedModel, SeenRequest, calls
from tests.web.conftest import Visitor

Visit = Callable[..., Visitor]
Picture = Callable[[Page, str], Path]

STOP = "devices.nas.NasSkill.stop"
NAS_SKILL = '''
import time
from pathlib import Path

from spoke import Skill, skill_method

FOLDER = Path(__file__).parent


class NasSkill(Skill):
    """A computer with a disk and a camera."""

    labels = {"de": {"NasSkill": "Speicher", "disk": "Platte", "stop": "Anhalten", "node": "Knoten"}}

    def fill(self, percent: float) -> None:
        """Set how full the disk is."""
        self.state("disk", percent, unit="%")

    @skill_method(
        destructive=True,
        sentences={"en": ["stop the node {node}"], "de": ["halte den knoten {node} an"]},
    )
    def stop(self, node: str) -> str:
        """Stop a node."""
        with (FOLDER / "journal.txt").open("a") as file:
            file.write(f"{node} stopped\\n")
        while (FOLDER / "hold").exists():
            time.sleep(0.02)
        return f"{node} is stopped"
'''


@pytest.fixture(scope="module")
def nas(house: House) -> Iterator[Spoke]:
    """A device with a disk and a camera."""
    spoke = house.add_spoke("nas", {"nas.py": NAS_SKILL})
    yield spoke
    house.kill(spoke.id)
    house.ask(f"/api/devices/{spoke.id}/revoke", {})


@pytest.fixture
def client(house: House) -> HubClient:
    return house.client


def _reply(seen: SeenRequest) -> Reply:
    if seen.tools == ["propose"]:
        return calls("propose", predicate="disk > 95")
    if seen.tools == ["decide"]:
        return calls("decide", decision="act", reason="The disk is at 97 %.", call=STOP)
    return Says(text="Hello.")


def test_a_watcher_is_made_in_words_tried_on_what_was_recorded_and_approved(
    page_of: Visit, picture: Picture, model: ScriptedModel, house: House, nas: Spoke, client: HubClient
) -> None:
    model.script = _reply

    def fill(percent: float) -> None:
        house.json("call", "nas", "NasSkill.fill", f"percent={percent}")

    fill(50)
    visitor = page_of()
    page = visitor.open("/watchers")
    picture(page, "watchers-empty")
    page.get_by_role("button", name="Make a watcher").click()
    page.get_by_role("button", name="Let a model decide").click()
    page.get_by_label("What should it do?").fill("Stop the camera node if the disk is above 95 %.")
    page.get_by_label("Name", exact=True).fill("full")
    page.get_by_role("button", name="Make a watcher").click()
    expect(page.locator(".q-field--error", has_text="Choose at least one value")).to_be_visible()
    page.get_by_text("As code").click()
    page.get_by_label("Other topics").fill(f"disk = {TOPIC}")
    page.get_by_label("Calls").click()
    page.keyboard.type("Nas: Stop")
    page.get_by_role("option", name="Nas: Stop (nas)").click()
    page.keyboard.press("Escape")
    page.get_by_label("Node").fill("camera")
    picture(page, "watcher-new")
    page.get_by_role("button", name="Make a watcher").click()

    # It is a draft, with the predicate that the model proposed, and does nothing yet.
    expect(page.locator("p.sb-lead")).to_have_text(
        "When Nas disk (nas) goes above 95 %: a model decides what to do, and may use stop the node camera "
        "(nas): Stop the camera node if the disk is above 95 %."
    )
    page.get_by_text("What exactly is called").first.click()
    expect(page.get_by_text('nas.NasSkill.stop(node="camera")')).to_be_visible()
    expect(page.get_by_label("Predicate")).to_be_hidden()
    picture(page, "watcher-draft")
    recorder = page_of().open("/captures")
    recorder.get_by_role("button", name="Start a capture").or_(
        recorder.get_by_role("button", name="New capture")
    ).first.click()
    recorder.get_by_label("Values of your home").click()
    recorder.get_by_role("option", name="Nas disk (nas)").click()
    recorder.keyboard.press("Escape")
    recorder.get_by_label("File", exact=True).fill("week.jsonl")
    recorder.get_by_role("button", name="Start", exact=True).click()
    expect(recorder.locator(".sb-card", has_text="week")).to_contain_text("Nas disk (nas)")
    for percent in (60, 72, 88, 97, 91, 64, 55, 96, 80, 70):
        fill(percent)
    capture = "/api/captures/week"
    wait_for(lambda: client.request("GET", capture)["messages"] >= 10, what="what is recorded")
    assert nas.journal() == []
    page.reload()
    # What happens before keeps no order: a button may come before the words.
    visitor.settle()
    page.get_by_text("As code").first.click()
    expect(page.get_by_label("Predicate")).to_have_value("disk > 95")
    page.get_by_label("Predicate").fill("dsk > 95")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("unknown name 'dsk' at column 1")).to_be_visible()
    page.get_by_label("Predicate").fill("disk > 90")
    page.get_by_label("Recorded in").click()
    page.get_by_role("option", name="the capture week").click()
    page.get_by_role("button", name="Back-test").click()
    expect(page.get_by_text("It would have fired 2 times.")).to_be_visible()
    assert page.locator(".sb-plot .sb-mark").count() >= 2
    picture(page, "watcher-back-test")

    page.get_by_role("button", name="Approve").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("and may use stop the node camera (nas)")
    expect(dialog).to_contain_text('nas.NasSkill.stop(node="camera")')
    dialog.get_by_role("button", name="Yes").click()
    expect(page.get_by_text("full is active")).to_be_visible()
    assert client.request("GET", "/api/watchers/full")["predicate"] == "disk > 90"
    fill(97)
    expect(
        page.get_by_role("table", name="History").or_(page.get_by_text("The disk is at 97 %."))
    ).not_to_have_count(0)
    wait_for(nas.journal, what="the action")
    assert nas.journal() == ["camera stopped"]
    expect(page.get_by_text("The disk is at 97 %.").first).to_be_visible()
    expect(page.get_by_role("group", name="History")).to_contain_text("stop the node camera (nas)")
    told = house.cli("events", "--kind", "watcher").stdout
    assert "full  act: The disk is at 97 %. · devices.nas.NasSkill.stop: done\n" in told
    assert "template" not in told
    picture(page, "watcher")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    # Another argument makes it another watcher, which waits for approval.
    page.get_by_role("button", name="Edit").click()
    expect(page.get_by_label("Topics", exact=True)).to_have_value(f"disk = {TOPIC}")
    visitor.settle()
    page.get_by_text("As code").click()
    page.get_by_label("Topics", exact=True).fill("")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".q-field--error", has_text="Choose at least one value")).to_be_visible()
    page.get_by_label("Topics", exact=True).fill(f"disk = {TOPIC}")
    page.get_by_label("Node").fill("other")
    page.get_by_label("It looks").click()
    page.get_by_role("option", name="At set times").click()
    page.get_by_label("Times").fill("every day at 7")
    picture(page, "watcher-edit")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("What exactly is called").first.click()
    expect(page.get_by_text('nas.NasSkill.stop(node="other")')).to_be_visible()
    changed = client.request("GET", "/api/watchers/full")
    assert (changed["state"], changed["predicate"]) == ("draft", "disk > 90")
    assert (changed["schedule"], changed["every_s"]) == ("every day at 7", None)
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Yes").click()
    expect(page.get_by_text("active", exact=True)).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()

    dark = page_of(dark=True, phone=True, locale="de-DE").open("/watchers/full")
    expect(dark.get_by_role("button", name="Fortsetzen")).to_be_visible()
    expect(dark.get_by_text("er ist pausiert").first).to_be_visible()
    picture(dark, "watcher-phone-dark-de")
    picture(page_of(phone=True).open("/watchers"), "watchers-phone")
    page = page_of().open("/captures")
    picture(page, "captures")
    page.locator(".sb-card", has_text="week.jsonl").or_(
        page.locator(".sb-card", has_text="week")
    ).first.get_by_role("button", name="Plot").click()
    expect(page.get_by_role("dialog").locator(".sb-plot svg").first).to_be_visible()
    picture(page, "capture-plot")
    page.get_by_role("button", name="Close").click()
    page.locator(".sb-card", has_text="week").first.get_by_role("button", name="Files").click()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download week.jsonl").click()
    lines = Path(saved.value.path()).read_text().splitlines()
    assert json.loads(lines[0])["topic"] == TOPIC
    picture(page, "capture-files")
    client.request("DELETE", "/api/watchers/full")
    client.request("DELETE", capture)


def test_a_watcher_is_made_of_one_sentence_whose_parts_are_controls(
    page_of: Visit, picture: Picture, house: House, nas: Spoke, client: HubClient
) -> None:
    house.json("call", "nas", "NasSkill.fill", "percent=42")
    visitor = page_of()
    page = visitor.open("/watchers/new")
    said = page.get_by_label("What should happen, and when?")
    said.fill("sing a song")
    page.get_by_role("button", name="Understand").click()
    expect(page.get_by_text("No watcher can be made of this sentence")).to_be_visible()
    said.fill("When the nas disk goes above 95 %, stop the node camera and tell me")
    page.get_by_role("button", name="Understand").click()
    expect(page.locator("p.sb-lead")).to_have_text(
        "When Nas disk (nas, now 42 %) goes above 95 %: stop the node camera (nas), "
        "then tell me “Nas disk: {disk} %”."
    )
    visitor.settle()
    picture(page, "watcher-sentence")
    # Each bold part leads to its control, and the sentence and the name follow what is changed.
    page.get_by_role("button", name="95 %", exact=True).click()
    expect(page.get_by_label("Limit")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("90")
    expect(page.locator("p.sb-lead")).to_contain_text("goes above 90 %: stop the node camera")
    expect(page.get_by_label("Name", exact=True)).to_have_value(
        "When Nas disk goes above 90 %: stop the node camera, then tell me “Nas disk: …"
    )
    page.get_by_label("Name", exact=True).fill("Full disk")
    page.get_by_label("Node").fill("garage")
    page.get_by_label("After").nth(1).click()
    page.get_by_role("option", name="5 min").click()
    page.get_by_role("button", name="Later").click()
    expect(page.locator("p.sb-lead")).to_contain_text("90 %: after 5 min, tell me")
    expect(page.get_by_label("Text").first).to_have_value("Nas disk: {disk} %")
    page.get_by_role("button", name="Make it").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("p.sb-lead")).to_contain_text("goes above 90 %: after 5 min, tell me")
    picture(page, "watcher-sentence-asked")
    dialog.get_by_role("button", name="Make it").click()
    expect(page.get_by_text("active", exact=True)).to_be_visible()
    expect(page.locator("p.sb-lead")).to_have_text(
        "When Nas disk (nas) goes above 90 %: after 5 min, tell me “Nas disk: {disk} %”, "
        "then stop the node garage (nas)."
    )
    picture(page, "watcher-of-sentence")
    [made] = [each for each in client.request("GET", "/api/watchers") if each["title"] == "Full disk"]
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Only", exact=True).click()
    page.get_by_role("option", name="Between two times").click()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("p.sb-lead")).to_contain_text("and it is between 22:00 and 06:00: after 5 min")
    changed = client.request("GET", f"/api/watchers/{made['name']}")
    assert changed["predicate"] == 'disk > 90 and time between "22:00" and "06:00"'
    phone = page_of(phone=True, locale="de-DE")
    small = phone.open("/watchers/new")
    small.get_by_label("Was soll wann geschehen?").fill(
        "Wenn die Platte über 95 % steigt, halte den Knoten Kamera an"
    )
    small.get_by_role("button", name="Weiter").click()
    expect(small.locator("p.sb-lead")).to_have_text(
        "Wenn Speicher: Platte (nas, jetzt 42 %) über 95 % steigt: halte den knoten Kamera an (nas)."
    )
    phone.settle()
    assert small.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(small, "watcher-sentence-phone-de")
    picture(phone.open("/watchers"), "watchers-sentence-phone-de")
    client.request("DELETE", f"/api/watchers/{made['name']}")

    # In the chat no model is asked either, and the question is the sentence.
    chat = page_of(locale="de-DE").open("/chat")
    chat.get_by_role("textbox", name="Nachricht").fill("Sag mir Bescheid, wenn die Platte über 95 % steigt")
    chat.keyboard.press("Enter")
    asked = chat.get_by_role("alertdialog")
    expect(asked.get_by_role("heading")).to_have_text(
        "Diesen Wächter anlegen? Wenn Speicher: Platte (nas, jetzt 42 %) über 95 % steigt: melde es mir: "
        "„Speicher: Platte: {disk} %“."
    )
    picture(chat, "watcher-sentence-chat-de")
    expect(chat.locator(".sb-steps > summary")).to_contain_text("Wächter aus einem Satz …")
    asked.get_by_role("button", name="Ja, mach das").click()
    expect(asked).to_have_count(0)
    wait_for(lambda: client.request("GET", "/api/watchers")[0]["state"] == "active", what="the yes")
    [made] = client.request("GET", "/api/watchers")
    assert (made["predicate"], made["model_calls"]) == ("disk > 95", 0)
    house.json("call", "nas", "NasSkill.fill", "percent=97")
    home = page_of(locale="de-DE").open("/")
    # What it told and that it told it are one thing.
    fired = home.locator(".sb-fired", has_text=made["title"] or made["name"])
    expect(fired).to_have_count(1)
    expect(fired).to_contain_text("97 %")
    house.json("call", "nas", "NasSkill.fill", "percent=42")
    client.request("DELETE", f"/api/watchers/{made['name']}")


def test_a_value_that_only_a_text_names_stays_when_its_watcher_is_changed(
    page_of: Visit, nas: Spoke, lamp_device: str, client: HubClient
) -> None:
    lamp = f"devices/{client.request('GET', f'/api/devices/{lamp_device}')['id']}/state/LampSkill/power"
    client.request(
        "POST",
        "/api/watchers",
        {
            "name": "full",
            "topics": {"power": lamp, "disk": TOPIC},
            "predicate": 'power == "on"',
            "then": [{"notify": "Disk at {disk} %"}],
        },
    )
    page = page_of().open("/watchers/full/edit")
    page.get_by_label("Text").fill("Now at {disk} %")
    # Another disk, which gets a name of its own.
    page.get_by_role("button", name="Add a condition").click()
    page.get_by_label("Value").nth(1).click()
    page.get_by_role("option", name=f"Computer disk ({lamp_device})").click()
    page.get_by_label("Limit").nth(1).fill("95")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("p.sb-lead")).to_contain_text("tell me “Now at {disk} %”")
    changed = client.request("GET", "/api/watchers/full")
    named = {name: each["topic"] for name, each in changed["topics"].items()}
    assert changed["predicate"] == 'power == "on" and disk_2 > 95'
    assert (named["disk"], named["power"]) == (TOPIC, lamp)
    page.close()  # The page of a watcher that is gone would look for it.
    client.request("DELETE", "/api/watchers/full")


def test_memory_is_changed_and_taken_back_and_an_agent_written(
    page_of: Visit, picture: Picture, house: House, nas: Spoke, client: HubClient
) -> None:
    page = page_of().open("/memory")
    picture(page, "memory-empty")
    for category, text in (
        ("Chores", "The bins go out on Monday."),
        (
            "Chores",
            "The plants on the balcony want water twice a week while it is hot, and none when it rains.",
        ),
        ("Preferences", "Ann likes the light in the kitchen at 40 %."),
    ):
        client.request("POST", "/api/memory", {"category": category, "text": text})
    page = page_of().open("/memory")
    page.get_by_role("button", name="Edit: The bins go out on Monday.").click()
    page.get_by_role("dialog").get_by_label("Text").fill("The bins go out on Tuesday.")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("The bins go out on Tuesday.")).to_be_visible()
    picture(page, "memory")
    page.get_by_role("button", name="Forget: Ann likes the light in the kitchen at 40").click()
    expect(page.get_by_text("Ann likes the light")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Ann likes the light in the kitchen at 40 %.", exact=True)).to_be_visible()
    picture(page_of(dark=True, phone=True, locale="de-DE").open("/memory"), "memory-phone-dark-de")
    for entry in client.request("GET", "/api/memory"):
        client.request("DELETE", f"/api/memory/{entry['id']}")

    page = page_of().open("/agents")
    picture(page, "agents-empty")
    page.get_by_role("button", name="Write one").click()
    page.get_by_role("dialog").get_by_label("Name").fill("finance")
    page.get_by_role("button", name="Write its file").click()
    profile = page.get_by_role("textbox", name="Profile")
    profile.fill("description: Keeps the accounts\nprompt: Count.\nmodle: house\n")
    expect(page.get_by_text("Line 3: unknown setting 'modle'")).to_be_visible()
    picture(page, "agent-mistake")
    profile.fill("description: Keeps the accounts\nprompt: Count.\n")
    expect(page.get_by_text("No mistake.")).to_be_visible()
    (house.home / "data" / "finance").mkdir(parents=True, exist_ok=True)
    (house.home / "data" / "finance" / "2026.csv").write_text("month,euro\nmay,12\n")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("link", name="Download 2026.csv")).to_be_visible()
    june = FilePayload(name="june 1.csv", mimeType="text/csv", buffer=b"june,9\n" * 90_000)
    page.get_by_label("File to add").set_input_files(june)
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("link", name="Download june 1.csv")).to_be_visible()
    assert (house.home / "data" / "finance" / "june 1.csv").read_bytes() == june["buffer"]
    picture(page, "agent")
    page.get_by_role("button", name="Delete june 1.csv").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("link", name="Download june 1.csv")).to_have_count(0)
    page = page_of().open("/agents")
    expect(page.get_by_text("Keeps the accounts")).to_be_visible()
    picture(page, "agents")
    # With an agent and a device to choose, what sends and stops stays within a phone.
    phone = page_of(phone=True).open("/chat")
    expect(phone.get_by_label("I am at")).to_be_visible()
    assert phone.eval_on_selector(".sb-composer-tools", "tools => tools.scrollWidth <= tools.clientWidth")
    picture(page_of(dark=True, phone=True, locale="de-DE").open("/agents/finance"), "agent-phone-dark-de")
    client.request("DELETE", "/api/agents/finance")
