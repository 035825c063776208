"""Chat in the browser: an answer as it comes, what is done meanwhile, questions, and what is left of it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import hub_web
from tests.e2e.house import House, Spoke, wait_for
from tests.model_server import Hangs, Reply, Says, ScriptedModel, SeenRequest, calls
from tests.web.conftest import Visitor, asked

Visit = Callable[..., Visitor]
Picture = Callable[[Page, str], Path]

LOCK_SKILL = '''
from pathlib import Path

from spoke import Skill, skill_method


class LockSkill(Skill):
    """Locks doors."""

    labels = {"de": {"LockSkill": "Türschloss", "unlock": "Tür entriegeln"}}

    @skill_method(
        confirm=True, sentences={"en": ["unlock [the] {door} door for {minutes} minute[s]"]}
    )
    def unlock(self, door: str, minutes: int = 5) -> str:
        """Unlock a door for some minutes."""
        with Path(__file__).with_name("journal.txt").open("a") as file:
            file.write(f"unlocked {door}\\n")
        return f"{door} is unlocked for {minutes} minutes"
'''

ANSWER = (
    """The front door is **unlocked** for 5 minutes.

| door | state |
|---|---|
| front | unlocked |
| garden | locked |

- [x] front
- [ ] garden

```python
def wide():  # all of it
    return "no", """
    + "1, " * 99
    + """
```
"""
)
HOSTILE = '![spy](http://127.0.0.2:9/a.png) <img src="http://127.0.0.2:9/b.png"> [more](javascript:alert(1))'


@pytest.fixture(scope="module")
def door(house: House) -> Iterator[Spoke]:
    """A device with a lock."""
    spoke = house.add_spoke("Door Pi", {"lock.py": LOCK_SKILL})
    yield spoke
    house.kill(spoke.id)
    house.ask(f"/api/devices/{spoke.id}/revoke", {})


def _say(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.keyboard.press("Enter")


def test_an_answer_is_read_aloud_without_its_code(page_of: Visit, model: ScriptedModel) -> None:
    model.script = lambda _: Says(text=ANSWER)
    page = page_of().open("/chat")
    page.evaluate("() => { speechSynthesis.speak = (said) => { window.said = [said.lang, said.text]; }; }")
    _say(page, "Read it to me")
    page.get_by_role("button", name="Read aloud").click()
    language, said = page.wait_for_function("window.said").json_value()
    assert (language[:2], said.split("\n")[0]) == ("en", "The front door is unlocked for 5 minutes.")
    assert "garden" in said
    assert "def wide" not in said
    assert "content_copy" not in said


def test_a_call_is_confirmed_with_its_real_arguments(
    page_of: Visit, picture: Picture, model: ScriptedModel, door: Spoke
) -> None:
    code = "devices.door_pi.LockSkill.unlock('front', minutes=5)"
    model.script = lambda seen: (
        calls("python_exec", code=code)
        if seen.messages[-1]["role"] == "user"
        else Says(text=ANSWER, gap_s=0.01)
    )
    page = page_of().open("/chat")
    picture(page, "chat-empty")
    _say(page, "Unlock the front door, please")
    card = page.get_by_role("alertdialog")
    expect(card.get_by_role("heading")).to_have_text("Unlock the front door for 5 minutes?")
    expect(card).to_contain_text("front")
    expect(card.get_by_role("button", name="No", exact=True)).to_be_focused()
    expect(card).to_contain_text("Door Pi")
    card.get_by_text("What exactly is called").click()
    # The method comes last, where no argument can push it away.
    expect(card.locator("dt")).to_have_text(["Device", "Door", "Minutes", "Action"])
    card.get_by_text("What exactly is called").click()
    card.get_by_role("button", name="No", exact=True).focus()
    expect(page.get_by_role("link", name="Unlock the front door")).to_be_visible()
    picture(page, "chat-confirmation")
    assert door.journal() == []
    # Reached by the keyboard alone.
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".sb-turn")).to_contain_text("The front door is unlocked")
    assert door.journal() == ["unlocked front"]
    page.get_by_text("1 call").click()
    page.get_by_text("Runs a program").click()
    expect(page.locator(".sb-code").first).to_contain_text("LockSkill.unlock")
    picture(page, "chat-steps")
    # The skill's own words in the language of the page, not the common ones.
    german = page_of(locale="de-DE", phone=True).open(page.url[page.url.index("/chat/") :])
    german.get_by_text("1 Aufruf").click()
    expect(german.locator(".sb-steps li.sb-inner")).to_contain_text("Tür entriegeln")
    picture(german, "chat-steps-phone-de")
    # What was recorded shows the same after the page is loaded again.
    page.reload()
    page.get_by_text("1 call").click()
    page.get_by_text("Runs a program").click()
    expect(page.locator(".sb-code").first).to_contain_text("LockSkill.unlock")
    page.locator(".sb-turn").hover()
    page.get_by_role("button", name="Ask again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Door Pi · LockSkill.unlock")
    dialog.get_by_role("button", name="Cancel").click()
    # Until it is gone it keeps the focus, and then gives it back to "Ask again", which Enter would press.
    expect(dialog).to_have_count(0)
    # A no is no failure, also where one looks later.
    _say(page, "Unlock it once more")
    page.get_by_role("alertdialog").get_by_role("button", name="No", exact=True).click()
    no = page.locator(".sb-turn", has_text="once more").locator("summary").first
    expect(no).to_contain_text("1 callblockYou said no: not done")
    picture(page, "chat-declined")
    page.reload()
    expect(no).to_contain_text("1 callblockYou said no: not done")
    assert door.journal() == ["unlocked front"]
    page.get_by_role("button", name="Where the time went").first.click()
    expect(page.get_by_role("heading", name="Unlock the front door, please")).to_be_visible()
    expect(page.get_by_text("A person took")).to_be_visible()
    picture(page, "turn-confirmation")


def test_a_changed_question_replaces_what_came_after_it(
    page_of: Visit, picture: Picture, model: ScriptedModel, house: House, lamp_device: str
) -> None:
    key = next(each["key"] for each in house.ask("/api/devices") if each["name"] == lamp_device)

    def script(seen: SeenRequest) -> Reply:
        if "lamp" in seen.said("user")[-1].splitlines()[-1] and not seen.results:
            return calls("python_exec", code=f"devices.{key}.LampSkill.turn_on()")
        return Says(text="Done.")

    model.script = script
    page = page_of().open("/chat")
    turns = page.locator(".sb-turn")
    for number, said in enumerate(("Good evening", "Use the lamp", "Thank you")):
        _say(page, said)
        expect(turns.nth(number).get_by_role("button", name="Ask again")).to_be_attached()
    turns.nth(1).hover()
    turns.nth(1).get_by_role("button", name="Change the question").click()
    editing = page.locator(".sb-editing")
    expect(editing).to_contain_text(f"{lamp_device} · LampSkill.turn_on")
    picture(page, "chat-edit")
    _say(page, "Only the small light")
    expect(turns.filter(has_text="Only the small light")).to_contain_text("Done.")
    expect(editing).to_be_empty()
    (changed,) = asked(model, "Only the small light")
    assert [said.splitlines()[-1] for said in changed.said("user")] == [
        "Good evening",
        "Only the small light",
    ]
    page.reload()
    fold = page.locator(".sb-replaced")
    expect(fold.locator("summary").first).to_have_text("history2 messages, replaced")
    fold.locator("summary").first.click()
    expect(fold.get_by_text("Use the lamp")).to_be_visible()
    expect(fold.get_by_role("button", name="Change the question")).to_have_count(0)
    picture(page, "chat-replaced")


def test_an_answer_loads_nothing_of_others(page_of: Visit, model: ScriptedModel) -> None:
    model.script = lambda _: Says(text=HOSTILE)
    page = page_of().open("/chat")
    _say(page, "Show me the picture")
    expect(page.locator(".sb-turn")).to_contain_text("spy")
    # A request to another origin fails the test at its end.
    expect(page.locator(".sb-turn img, .sb-turn a")).to_have_count(0)


def test_an_answer_is_stopped(page_of: Visit, model: ScriptedModel, house: House) -> None:
    model.script = lambda _: Hangs(text="I begin to")
    page = page_of().open("/chat")
    _say(page, "Tell me a very long story")
    expect(page.locator(".sb-turn")).to_contain_text("I begin to")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".sb-turn")).to_contain_text("Stopped.")
    wait_for(lambda: house.turn_state("Tell me a very long story") == "cancelled", what="the turn to end")


def test_a_turn_goes_on_while_its_page_is_loaded_again(page_of: Visit, model: ScriptedModel) -> None:
    model.script = lambda _: Says(text="word " * 60, gap_s=3.0)
    page = page_of().open("/chat")
    try:
        _say(page, "Count them")
        expect(page.locator(".sb-turn")).to_contain_text("word")
        page.reload()
        expect(page.locator(".sb-turn")).to_have_count(1)
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        model.hurry.set()
        expect(page.get_by_role("button", name="Send")).to_be_visible()
        expect(page.locator(".sb-turn .sb-text")).to_have_text("word " * 60)
    finally:
        model.hurry.clear()


def test_conversations_are_found_renamed_and_deleted(
    page_of: Visit, picture: Picture, model: ScriptedModel
) -> None:
    model.script = lambda _: Says(text="Noted.")
    visitor = page_of()
    for said in (
        "Remember the milk",
        "What is the weather like in a place with a very long name, and tomorrow?",
    ):
        page = visitor.open("/chat")
        _say(page, said)
        expect(page.locator(".sb-turn")).to_contain_text("Noted.")
    page = visitor.open("/chat")
    page.get_by_role("searchbox", name="Search").fill("milk")
    entry = page.locator(".sb-chat-entry")
    expect(entry).to_have_count(1)
    entry.hover()
    entry.get_by_role("button").click()
    page.get_by_role("menuitem", name="Rename").click()
    page.get_by_role("textbox", name="Title").fill("Shopping")
    page.get_by_role("button", name="Save").click()
    entry = page.locator(".sb-chat-entry", has_text="Shopping")
    expect(entry).to_be_visible()
    picture(page, "chat-conversations")
    with page.expect_download() as download:
        entry.hover()
        entry.get_by_role("button").click()
        page.get_by_role("menuitem", name="Export as Markdown").click()
    assert "Remember the milk" in download.value.path().read_text()
    entry.hover()
    entry.get_by_role("button").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(entry).to_have_count(0)


def test_a_conversation_goes_on_with_the_agent_that_was_chosen(
    page_of: Visit, model: ScriptedModel, house: House
) -> None:
    model.script = lambda _: Says(text="Noted.")
    house.ask("/api/agents", {"name": "gardener", "source": "prompt: You keep the roses.\n"})
    visitor = page_of()
    page = visitor.open("/chat")
    agent = page.get_by_label("Agent")
    agent.click()
    page.get_by_role("option", name="gardener").click()
    _say(page, "Water the roses")
    expect(page).to_have_title("Water the roses · Strawberry")
    page.reload()
    expect(agent).to_have_value("gardener")
    # What happens before keeps no order: Enter may come before the words.
    visitor.settle()
    _say(page, "And the tulips")
    expect(page.locator(".sb-turn").nth(1)).to_contain_text("Noted.")
    for said in ("Water the roses", "And the tulips"):
        (seen,) = asked(model, said)
        assert "You keep the roses." in seen.said("system")[0]
    (house.home / "agents" / "gardener.yml").unlink()


def test_a_photo_and_a_text_file_go_with_a_message(
    page_of: Visit, picture: Picture, model: ScriptedModel, tmp_path: Path
) -> None:
    model.script = lambda _: Says(text="A strawberry, and a list.")
    icon = Path(hub_web.__file__).parent / "static" / "icon-192.png"
    (tmp_path / "list.txt").write_text("milk\nbread")
    (tmp_path / "song.bin").write_bytes(b"\0\xff\xfe")
    page = page_of(phone=True).open("/chat")
    page.locator("input[type=file]").set_input_files([icon, tmp_path / "list.txt", tmp_path / "song.bin"])
    expect(page.get_by_text("song.bin is neither a picture nor a text file.")).to_be_visible()
    expect(page.get_by_role("button", name="Leave list.txt out")).to_be_visible()
    picture(page, "chat-files-phone")
    page.get_by_role("textbox", name="Message").fill("what did I send?")
    page.keyboard.press("Enter")
    expect(page.get_by_text("A strawberry, and a list.")).to_be_visible()
    (seen,) = asked(model, "what did I send?")
    text, shown = seen.messages[-1]["content"]
    assert '<data from="outside" of="list.txt">\nmilk\nbread' in text["text"]
    assert shown["image_url"]["url"].startswith("data:image/jpeg;base64,/9j/")
    page.reload()
    expect(page.locator(".sb-question").get_by_text("list.txt")).to_be_visible()
    expect(page.locator(".sb-question").get_by_text("icon-192.png")).to_be_visible()
    # The files that are kept count with those that are added when the question is changed.
    page.get_by_role("button", name="Change the question").click()
    expect(page.get_by_role("button", name="Leave list.txt out")).to_be_visible()
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(name)
    page.locator("input[type=file]").set_input_files([tmp_path / f"{name}.txt" for name in "abcd"])
    expect(page.get_by_role("button", name="Leave c.txt out")).to_be_visible()
    expect(page.get_by_role("button", name="Leave d.txt out")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.locator(".sb-question").last.get_by_text("c.txt")).to_be_visible()


def test_chat_on_a_phone(page_of: Visit, picture: Picture, model: ScriptedModel) -> None:
    model.script = lambda _: Says(text="Das Licht ist **an**.")
    page = page_of(phone=True, dark=True, locale="de-DE").open("/chat")
    page.get_by_role("textbox", name="Nachricht").fill("Mach das Licht an, bitte, und zwar im Wohnzimmer")
    page.get_by_role("button", name="Senden").click()
    expect(page.locator(".sb-turn")).to_contain_text("Das Licht ist an.")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    picture(page, "chat-phone-dark-german")
