"""Integrations are loaded where they were turned on, with the settings that were given."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from spoke.integrations import enabled
from spoke.settings import SpokeSettings
from spoke.skill_host import SkillHost
from tests.deploy.strawberry import environment_of, run
from tests.spoke.samples.conftest import RecordingSink


@asynccontextmanager
async def running(home: Path) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Run the skills of a spoke; yields what waits until it has these."""
    host = await SkillHost.load(SpokeSettings(home=home), device="pc", sink=RecordingSink())

    async def offers(*names: str) -> None:
        async with asyncio.timeout(60):
            while host.available != names:  # noqa: ASYNC110 - another process makes it so
                await asyncio.sleep(0.01)

    async with host, asyncio.TaskGroup() as tasks:
        following = tasks.create_task(host.follow())
        yield offers
        following.cancel()


async def test_an_integration_is_off_until_it_is_turned_on(tmp_path):
    async def strawberry(*words: str) -> "subprocess.CompletedProcess[str]":
        return await asyncio.to_thread(run, environment_of(tmp_path), "skills", *words)

    async with running(tmp_path) as offers:
        await offers()
        assert (await strawberry("enable", "weather", "place=Berlin")).returncode == 0
        await offers("WeatherSkill")
        assert '"place": "Berlin"' in (tmp_path / "spoke/data/WeatherSkill/settings.json").read_text()
        assert "Weather now and in the next days" in (await strawberry("available")).stdout
        mistakes = (
            (["wether"], "weather"),
            (["weather", "place=Rome"], "on already"),
            (["reader", "feads=x"], "feads"),
        )
        secret = ["calendar", 'calendars={"a": "https://x/"}', "password=1"], "is a secret"
        wrong = (*mistakes, secret)
        answers = await asyncio.gather(*(strawberry("enable", *words) for words, _ in wrong))
        assert [answer.returncode for answer in answers] == [1] * len(wrong)
        assert [
            said for (_, said), answer in zip(wrong, answers, strict=True) if said not in answer.stderr
        ] == []
        assert (await strawberry("disable", "weather")).returncode == 0
        await offers()


async def test_a_broken_list_turns_all_off_and_says_so(tmp_path, caplog):
    (tmp_path / "spoke").mkdir()
    (tmp_path / "spoke" / "integrations.json").write_text("{")
    async with running(tmp_path) as offers:
        await offers()
        for _ in range(3):
            assert enabled(tmp_path / "spoke") == []
    # It is read several times a second, and told once.
    assert caplog.text.count("no integration is on") == 1
