from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts import topics
from tests.hub_agent.home import open_home
from tests.hub_live.watchers.watching import CameraSkill, Watching
from tests.model_server import ScriptedModel


@pytest.fixture
async def watching(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Watching]:
    """A home with a device called nas, and the scripted model."""
    camera = CameraSkill()
    async with open_home(tmp_path / "home", model_url=model.base_url) as home:
        device = await home.device("nas", camera)
        feed = home.hub.live.feed
        # Heard from the beginning, so that a test can wait for what it publishes.
        with feed.follow(topics.STATE.filter(), lambda _: None):
            await feed.settled()
            async with home.client() as client:
                yield Watching(home, device, camera, client)
