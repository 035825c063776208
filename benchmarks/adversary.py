"""What a person notices while one enrolled device does its worst."""

import asyncio
from pathlib import Path
from typing import Final

from benchmarks.measure import Effort, sandbox_directory
from benchmarks.table import Reach, Row
from sandbox_host import install
from tests.adversary.device import Credentials
from tests.adversary.person import Act, attacked, home_of_a_person, live, percentile, person_of

_SECONDS: Final = 40
"""Of each half: some two hundred acts, so that the 99th percentile is not the worst one alone."""
_WARM_S: Final = 2
_ENDS_S: Final = 5
"""How much longer the device attacks than the person is measured."""


async def rows(directory: Path, effort: Effort) -> list[Row]:
    """Measure a person's chat, call and confirmation, without the device and with it."""
    await install(sandbox_directory())
    seconds = effort.repeats(_SECONDS)
    with home_of_a_person(directory / "house", sandbox_directory(), debug=False) as (house, spoke):
        credentials = await asyncio.to_thread(Credentials.enrol, house, "Mad Pi")
        async with person_of(house, spoke) as person:
            await live(person, _WARM_S)
            quiet = await live(person, seconds)
            with attacked(house, credentials, seconds + _ENDS_S):
                busy = await live(person, seconds)
    work = "a person's chat, call and confirmation, p99, while one enrolled device does its worst"
    reach = Reach(most=250, ratio_most=3)
    failed = sum(bool(act.problem) for act in (*quiet, *busy))
    return [
        Row(work, _ms(busy, 0.99), "ms", reach, reference=_ms(quiet, 0.99)),
        Row("  the same, p50", _ms(busy, 0.5), "ms", reference=_ms(quiet, 0.5)),
        Row("  acts of the person that failed", failed, "", Reach(most=0)),
    ]


def _ms(acts: list[Act], share: float) -> float:
    return 1000 * percentile(acts, share)
