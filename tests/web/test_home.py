"""The page *Home*: each person arranges it, talks to it, and sees it in their language."""

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.model_server import Says, ScriptedModel
from tests.web.conftest import Visitor

Visit = Callable[..., Visitor]
Picture = Callable[[Page, str], Path]


def test_a_person_arranges_their_home_and_finds_it_so_again(page_of: Visit, picture: Picture) -> None:
    visitor = page_of()
    page = visitor.open("/")
    card = page.get_by_role("region", name="Lamp", exact=True)
    expect(card).to_be_visible()
    expect(page.get_by_role("toolbar")).to_have_count(0)
    page.get_by_role("button", name="Arrange").click()
    page.get_by_role("button", name="Rename: Lamp").press("Enter")
    expect(page.get_by_label("Card", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    # A form gives the keyboard back to its button.
    expect(page.get_by_role("button", name="Rename: Lamp")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_label("Card", exact=True).fill("Reading lamp")
    page.get_by_role("textbox", name="Brightness").fill("How bright")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Rename: Reading lamp")).to_be_focused()
    star = page.get_by_role("button", name="Add to favourites: Reading lamp")
    star.press("Enter")
    # The keyboard stays where it was.
    expect(page.get_by_role("button", name="Remove from favourites: Reading lamp")).to_be_focused()
    page.get_by_role("button", name="Hide: Notes").click()
    # What is pressed while the page is made again is gone.
    expect(page.get_by_role("button", name="Show: Notes")).to_be_focused()
    first = page.get_by_role("toolbar").nth(1)
    name = first.get_attribute("aria-label")
    first.get_by_role("button", name="Move down").click()
    expect(page.get_by_role("toolbar").nth(2)).to_have_attribute("aria-label", name or "")
    picture(page, "home-arranged")
    page.get_by_role("button", name="Done").click()
    again = page_of(phone=True, dark=True).open("/")
    expect(again.get_by_role("region", name="Favourites").get_by_text("Reading lamp")).to_be_visible()
    expect(again.get_by_text("How bright")).to_be_visible()
    expect(again.get_by_role("region", name="Notes")).to_have_count(0)
    again.get_by_role("button", name="Arrange").click()
    again.get_by_role("button", name="Hide: Reading lamp").scroll_into_view_if_needed()
    assert again.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(again, "home-arranged-phone")
    visitor.house.client.request("PUT", "/api/home", {"cards": []})


def test_a_card_is_dragged_with_the_pointer_and_two_windows_arrange_one_home(page_of: Visit) -> None:
    visitor = page_of()
    first, second = visitor.open("/"), page_of().open("/")
    for page in (first, second):
        page.get_by_role("button", name="Arrange").click()
    second.get_by_role("button", name="Hide: Notes").click()
    expect(second.get_by_role("button", name="Show: Notes")).to_be_visible()
    bars = first.get_by_role("toolbar")
    moved, target = (bars.nth(place).get_attribute("aria-label") for place in (0, 2))
    cards = first.locator(".sb-thing")
    cards.nth(0).locator("h2").drag_to(cards.nth(2).locator("h2"))
    expect(bars.nth(2)).to_have_attribute("aria-label", moved or "")
    expect(bars.nth(1)).to_have_attribute("aria-label", target or "")
    # The first window had not seen what the second one hid, and kept it all the same.
    stored = visitor.house.ask("/api/home")["cards"]
    assert [each["id"].rpartition(".")[2] for each in stored if each["hidden"]] == ["NotesSkill"]
    # The second one has not seen the new order: it says so, shows it, and then takes the change.
    second.get_by_role("button", name=re.compile("^Move down: ")).first.click()
    expect(second.get_by_text("another window has changed this card or the order")).to_be_visible()
    assert visitor.house.ask("/api/home")["cards"] == stored
    expect(second.get_by_role("toolbar").nth(2)).to_have_attribute("aria-label", moved or "")
    second.get_by_role("button", name=re.compile("^Move down: ")).first.click()
    expect(second.get_by_role("toolbar").nth(0)).not_to_have_attribute("aria-label", target or "")
    visitor.house.client.request("PUT", "/api/home", {"cards": []})


def test_the_home_answers_on_its_page(page_of: Visit, picture: Picture, model: ScriptedModel) -> None:
    model.script = lambda _: Says(text="All windows are closed.")
    page = page_of(phone=True).open("/")
    page.get_by_label("Ask or tell your home …").fill("Are the windows closed?")
    page.keyboard.press("Enter")
    expect(page.get_by_text("All windows are closed.")).to_be_visible()
    picture(page, "home-asked-phone")
    page.get_by_role("link", name="Continue in Chat").click()
    expect(page.get_by_text("Are the windows closed?").first).to_be_visible()
    expect(page).to_have_url(re.compile("/chat/"))
