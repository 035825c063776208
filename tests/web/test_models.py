"""Models in the browser: the first steps to one, their order, keys, and Ollama."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.house import House
from tests.model_server import Says, ScriptedModel, calls
from tests.model_server.ollama import FakeModel, FakeOllama
from tests.web.conftest import Visitor

KEY = "sk-house-4711-secret"


@pytest.fixture
def settings(house: House) -> Iterator[Path]:
    """The settings of the house, which are as they were afterwards."""
    file = house.home / "strawberry.toml"
    before = file.read_text()
    yield file
    file.write_text(before)
    (house.home / ".env").unlink(missing_ok=True)


@pytest.fixture
def ollama() -> Iterator[FakeOllama]:
    library = [FakeModel("gemma3:4b", layers=(3_300_000_000, 20_000))]
    with FakeOllama(models=[FakeModel("qwen3:4b", layers=(2_500_000_000,))], library=library) as server:
        yield server


def entries(house: House, *entries: dict[str, object]) -> None:
    house.client.request("PUT", "/api/models", {"entries": list(entries)})


def test_the_first_model_is_tried_and_written_with_a_key_that_is_never_shown(
    house: House,
    page_of: Callable[..., Visitor],
    picture: Callable[[Page, str], Path],
    model: ScriptedModel,
    settings: Path,
) -> None:
    entries(house)
    model.script = lambda _: Says(text="Seven.")
    page = page_of().open("/models")
    expect(page.get_by_role("heading", name="Add a language model")).to_be_visible()
    page.get_by_role("button", name="OpenAI, or compatible").click()
    page.get_by_role("button", name="Test").click()
    expect(page.locator(".q-field--error", has_text="Say which model")).to_be_visible()
    page.get_by_role("textbox", name="Model").fill("scripted")
    page.get_by_role("textbox", name="Address").fill(model.base_url)
    page.get_by_role("textbox", name="Key").fill(KEY)
    page.get_by_role("button", name="Use this model").click()
    expect(page.get_by_role("dialog", name="Use it although it cannot act?")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    model.script = lambda _: calls("report_number", number=7)
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_text("and calls tools")).to_be_visible()
    picture(page, "models-first-steps")
    page.get_by_role("button", name="Use this model").click()
    expect(page.get_by_role("listitem").filter(has_text="scripted")).to_contain_text("ready")
    expect(page.get_by_role("heading", name="Try it now")).to_be_visible()
    assert model.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert f"SCRIPTED_API_KEY={KEY}" in (house.home / ".env").read_text()
    page.reload()
    page.wait_for_selector(".sb-model")
    assert KEY not in page.content()
    assert 'api_key_env = "SCRIPTED_API_KEY"' in settings.read_text()


def test_a_question_that_no_model_can_answer_stays_with_the_way_to_models(
    house: House, page_of: Callable[..., Visitor], picture: Callable[[Page, str], Path], settings: Path
) -> None:
    entries(house)
    page = page_of().open("/chat")
    expect(page.get_by_role("heading", name="No model is configured yet.")).to_be_visible()
    page.get_by_role("textbox", name="Message").fill("Write me a poem")
    page.keyboard.press("Enter")
    note = page.locator(".sb-ended")
    expect(note).to_contain_text("no model is configured")
    page.reload()
    expect(note).to_contain_text("no model is configured")
    picture(page, "chat-no-model")
    expect(page.get_by_role("alert")).to_have_count(0)
    note.get_by_role("link", name="Models").click()
    expect(page).to_have_url(f"{house.url}/models")


def test_models_are_ordered_tested_and_pulled(
    house: House,
    page_of: Callable[..., Visitor],
    picture: Callable[[Page, str], Path],
    model: ScriptedModel,
    ollama: FakeOllama,
    settings: Path,
) -> None:
    long = "a-very-long-name-that-somebody-has-given-to-a-model-of-theirs"
    entries(
        house,
        {"name": "house", "provider": "openai", "model": "scripted", "base_url": model.base_url},
        {
            "name": "small",
            "provider": "ollama",
            "model": "qwen3:4b",
            "base_url": ollama.origin,
            "tools": "native",
        },
        {"name": long, "provider": "anthropic", "model": "claude"},
    )
    model.script = lambda _: calls("report_number", number=7)
    visitor = page_of()
    page = visitor.open("/models")
    rows = page.locator(".sb-model")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Ask small earlier").click()
    expect(rows.first).to_contain_text("small")
    assert settings.read_text().index('"small"') < settings.read_text().index('"house"')
    page.get_by_role("button", name="Test house").click()
    expect(rows.nth(1)).to_contain_text("and calls tools")
    expect(page.get_by_role("table", name="Models in Ollama").or_(page.locator(".sb-table"))).to_contain_text(
        "qwen3:4b"
    )
    picture(page, "models")

    page.get_by_role("textbox", name="Get another model").fill("nothing:1b")
    visitor.expected.append("nothing:1b")
    page.get_by_role("button", name="Download", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="no model nothing:1b").first).to_be_visible()
    ollama.held_pull = 5
    page.get_by_role("textbox", name="Get another model").fill("gemma3:4b")
    page.get_by_role("button", name="Download", exact=True).click()
    expect(page.get_by_text("of 3.3 GB")).to_be_visible()
    picture(page, "models-pull")
    page.get_by_role("button", name="Stop the download").click()
    expect(page.get_by_text("goes on from here")).to_be_visible()
    ollama.held_pull = None
    page.get_by_role("button", name="Download", exact=True).click()
    expect(page.locator(".sb-table")).to_contain_text("gemma3:4b")
    page.get_by_role("button", name="Use gemma3:4b").click()
    expect(rows).to_have_count(4)

    page.get_by_role("button", name=f"More about {long}").click()
    page.get_by_role("menuitem", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(rows).to_have_count(3)
    phone = page_of(dark=True, phone=True, locale="de-DE").open("/models")
    expect(phone.get_by_role("heading", name="Modelle", level=1)).to_be_visible()
    picture(phone, "models-phone-dark-de")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360
