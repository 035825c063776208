"""Markup in whatever others name and say: no page runs it, and no page asks another host because of it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.e2e.house import House
from tests.model_server import Says, ScriptedModel, calls
from tests.mosquitto import HINT, Mosquitto, find_mosquitto
from tests.requirements import require
from tests.web.conftest import Visitor

RAN = "window.ran=1"
EVIL = f'</script><img src=x onerror="{RAN}">'
NAMES = (EVIL, "{{constructor.constructor('" + RAN + "')()}}")
"""Short enough for a name. The second is a template of Vue, in which NiceGUI's pages are written."""
TEXT = (
    f"{EVIL}<script>{RAN}</script><svg onload={RAN}><iframe src=http://evil.example></iframe>"
    f"<style>@import 'http://evil.example/a.css'</style><meta http-equiv=refresh content='0;http://evil.example'>"
    f"![a](http://evil.example/a.png) [b](javascript:{RAN}) [c](data:text/html,<script>{RAN}</script>)\n\n"
    f"```<img onerror={RAN} src=x>\n{EVIL}\n```\n\n{NAMES[1]} <a href='javascript:{RAN}'>d</a>"
    f"<img src=//evil.example/b.png><form action=http://evil.example><button>e</button></form>"
)
SKILL = f'''
from strawberry import Skill, skill_method

TEXT = {TEXT!r}

class MarkupSkill(Skill):
    __doc__ = TEXT

    @skill_method(read_only=True)
    def look(self, what: str = TEXT) -> str:
        """Look."""
        return TEXT

    look.__doc__ = TEXT

    async def start(self) -> None:
        await self.publish_state("weather", TEXT, unit={NAMES[0][:20]!r})
'''
PAGES = [
    "",
    "chat",
    "devices",
    "skills",
    "watchers",
    "watchers/new",
    "captures",
    "memory",
    "agents",
    "people",
]
PAGES += ["audit", "turns", "bus", "models", "home-assistant", "system"]
NAMED = {"", "chat", "devices", "watchers", "memory", "people", "audit", "turns", "system"}
"""Pages that show a name."""
LATER = {"bus": ".sb-topic", "system": ".sb-checks"}
"""What a page shows later than the rest."""


@pytest.fixture(scope="module")
def marked(
    tmp_path_factory: pytest.TempPathFactory, sandbox_files: Path, model: ScriptedModel
) -> Iterator[House]:
    """A house in which everything that can be named is named so."""
    require(find_mosquitto() is not None, HINT)
    with (
        Mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker,
        House(tmp_path_factory.mktemp("marked") / "house", sandbox=sandbox_files, debug=False) as house,
    ):
        house.use_model(model.base_url)
        settings = house.home / "strawberry.toml"
        settings.write_text(f'{settings.read_text()}\n[home_broker]\nurl = "{broker.url}"\n')
        agents = house.home / "agents"
        agents.mkdir(parents=True)
        profile = {"description": TEXT, "prompt": TEXT, "tools": ["file_list"]}
        (agents / "evil.yml").write_text(json.dumps(profile))
        (agents / "broken.yml").write_text(f"{json.dumps(NAMES[0])}: {json.dumps(TEXT)}\n")
        data = house.home / "data" / "evil"
        data.mkdir(parents=True)
        (data / f"{NAMES[0].replace('/', '')}.md").write_text(TEXT)
        house.start_up()
        _plant(house, model)
        _publish(broker)
        yield house


def _plant(house: House, model: ScriptedModel) -> None:
    house.add_spoke("Evil", {"markup.py": SKILL})
    for name in NAMES:
        house.ask("/api/devices", {"name": name, "area": name, "aliases": [name]})
        house.ask("/api/users", {"name": name})
        house.ask("/api/tokens", {"name": name, "scopes": ["chat"]})
    topic = "users/admin/events/note"
    house.ask("/api/bus/publish", {"topic": topic, "payload": TEXT, "link": "bus"})
    house.ask("/api/memory", {"category": NAMES[0], "text": TEXT.replace("\n", " ")[:480]})
    house.ask("/api/captures", {"topics": [topic], "path": f"{NAMES[1]}.jsonl", "format": "jsonl"})
    house.ask(
        "/api/watchers",
        {"name": "evil", "instruction": TEXT, "topics": {"a": topic}, "predicate": "changed(a)"},
    )
    timer = {"device": "hub", "skill": "WatcherSkill", "method": "set_timer"}
    house.ask("/api/skills/call", {**timer, "kwargs": {"minutes": 60, "text": NAMES[0]}})
    program = calls("python_exec", code=f"print(devices.evil.MarkupSkill.look())\n# {TEXT}")
    # By what was asked: other tests have asked the same model before.
    model.script = lambda seen: Says(text=TEXT) if seen.results else program
    house.ask("/api/chat", {"message": TEXT, "conversation": "evil"})


def _publish(broker: Mosquitto) -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", int(broker.url.rpartition(":")[2]))
    client.loop_start()
    config = {
        "name": TEXT[:250],
        "state_topic": NAMES[0].replace("+", ""),
        "unit_of_meas": NAMES[0][:20],
        "device": {"name": NAMES[1], "suggested_area": NAMES[0]},
    }
    for topic, payload in (
        ("homeassistant/sensor/evil/config", json.dumps(config)),
        (NAMES[0], TEXT),
        (f"evil/{NAMES[1]}", json.dumps({TEXT: TEXT})),
    ):
        client.publish(topic, payload, qos=1, retain=True).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()


def test_no_page_runs_what_others_have_named_and_said(page_of: Callable[..., Visitor], marked: House) -> None:
    visitor = page_of(of=marked)
    visitor.expected.append("404")
    # Whenever it runs, it is among the faults at the end.
    visitor.context.add_init_script(
        "Object.defineProperty(window, 'ran', {set() { console.error('it ran') }})"
    )
    visitor.page.on("dialog", lambda dialog: visitor.faults.append(f"dialog: {dialog.message}"))
    devices = [device["id"] for device in marked.ask("/api/devices")]
    turn = marked.ask("/api/turns")["turns"][0]["turn"]
    pages = [*PAGES, *(f"devices/{each}" for each in devices), "chat/evil", f"turns/{turn}", "agents/evil"]
    pages += ["watchers/evil", f"devices/{quote(NAMES[0], safe='')}"]
    pages += [
        f"chat/{quote(NAMES[1], safe='')}",
        f"login?next={quote(EVIL)}",
        f"{quote(NAMES[1])}?a={quote(EVIL)}",
    ]
    shown = ""
    for path in pages:
        page = visitor.open(f"/{path}")
        if path in NAMED:
            page.wait_for_function(
                "names => names.some(each => document.body.innerText.includes(each))", arg=NAMES
            )
        if path in LATER:
            page.locator(LATER[path]).first.wait_for()
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        shown += page.evaluate("document.body.innerText")
        # The next page may be there before a picture fails, and what that runs.
        assert page.locator("[onerror], [onload]").count() == 0, path
        assert page.url.startswith(marked.url), path
    # They are there: as text.
    assert min(shown.count(name) for name in NAMES) > 3
    assert "javascript:" in shown
