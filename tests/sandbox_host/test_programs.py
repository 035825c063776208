"""What a program in the sandbox can do, and what comes back from it."""

from sandbox_host import PoolSettings, RunResult, open_pool
from tests.sandbox_host.house import House


async def run(settings: PoolSettings, house: House, *programs: str) -> RunResult:
    """Run programs one after the other in one session; give the last result."""
    async with open_pool(settings) as pool:
        session = await pool.session("conversation")
        for program in programs:
            result = await session.run(program, house)
    return result


async def test_the_value_of_the_last_expression_comes_back(settings: PoolSettings, house: House) -> None:
    result = await run(settings, house, "a = 1\na + 1")
    assert result.ok
    assert result.value == 2
    assert result.repr == "2"


async def test_a_call_looks_like_any_function(settings: PoolSettings, house: House) -> None:
    result = await run(settings, house, "devices.pc.EchoSkill.echo(1, to='you')")
    assert result.value == [[1], {"to": "you"}]
