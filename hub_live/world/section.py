"""The section of a prompt on the world: what the question names first, then the rest in numbers."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from agent_core.prompt import estimate_tokens
from agent_core.provenance import Prompt, render_name
from agent_core.search.words import query_terms, singular
from agent_core.times import ago
from contracts.wire import Json
from hub_agent.prompt import Asked, PromptPart
from hub_live.world.thing import Thing
from hub_live.world.world import World

WORLD_TOKENS: Final = 400
"""A dozen entities with their states and the areas of a large home; models read it with each message."""
_AREA_TOKENS: Final = 80
"""For the areas, out of these."""
_EARLIER: Final = 0.5
"""Weight of what was said before the message itself."""
_KIND: Final = 0.5
"""Weight of a word for what a thing is: "the light" alone names none of many."""
_NAMED: Final = 1.0
"""Least score of what a question names: one word that is not an everyday one."""
_ALL: Final = 40
"""Entities of a home so small that those are listed, too, which the question does not name."""
_TOKEN: Final = re.compile(r"[\w.:%+#-]{1,24}")
"""A state that is a word or a number. Others are texts, which may be anybody's, and stand in no prompt."""
_UNIT: Final = re.compile(r"[^\s\"<>&\[\]]{1,12}")


async def world_part(world: World, asked: Asked) -> PromptPart | None:
    """Return what the prompt of a message says of the world; see `hub_agent.prompt.Contribution`."""
    text = world_section(world, asked.user.id, asked.said)
    return PromptPart(text) if text is not None else None


def world_section(world: World, user: str, said: Sequence[str]) -> Prompt | None:
    """Return what there is to know of the entities; None where there are none.

    Args:
        user: Id of the person for whom it is.
        said: What the person said, the newest last.
    """
    everything = [*world.device_states(user), *world.entities.list()]
    if not everything:
        return None
    named, others = _ranked(everything, said)
    count = len(everything) + world.entities.left_out
    head = f"Entities: {count}; devices.hub.WorldSkill.get_world(area=…, kind=…, name=…) has their states"
    listed = [*named, *others] if len(everything) <= _ALL else named
    texts = ("".join(_parts(world.current(each))) for each in listed)
    lines = _fitting(texts, WORLD_TOKENS - estimate_tokens(head) - _AREA_TOKENS)
    if len(lines) == count:
        return Prompt("\n".join(("Entities:", *lines)))
    counted = Counter(each.area for each in everything if each.area).most_common()
    areas = _fitting((f"{render_name(area)} {many}" for area, many in counted), _AREA_TOKENS)
    more = [f"and {len(counted) - len(areas)} more"] if len(areas) < len(counted) else []
    return Prompt("\n".join((head, *lines, *([f"Areas: {', '.join([*areas, *more])}"] if areas else ()))))


def _fitting(texts: Iterable[str], tokens: int) -> list[str]:
    """Return the first texts that fit; each with what separates it from the next."""
    fitting = []
    for text in texts:
        tokens -= estimate_tokens(text) + 1
        if tokens < 0:
            break
        fitting.append(text)
    return fitting


def _ranked(everything: Sequence[Thing], said: Sequence[str]) -> tuple[list[Thing], list[Thing]]:
    """Return what is named, best first, and what is not."""
    weights: dict[str, float] = {}
    for place, text in enumerate(reversed(said)):
        for term in query_terms(text):
            word = singular(term.word)
            weights[word] = max(weights.get(word, 0), _EARLIER**place)
    wanted = frozenset(weights)
    scored, others = [], []
    for each in everything:
        score = 0.0
        if not wanted.isdisjoint(each.words):
            score = sum(weights[word] for word in wanted & each.words)
            score += _KIND * sum(weights[word] for word in wanted & each.kind_words - each.words)
        if score >= _NAMED:
            # Of two that match as well, the one whose name says less besides.
            scored.append((-score, len(each.words), each.name, each))
        else:
            others.append(each)
    return [each for *_, each in sorted(scored, key=lambda found: found[:3])], others


def _parts(thing: Thing) -> Iterator[str]:
    yield f"- {thing.kind} {render_name(thing.name)}"
    if thing.link == "bus":
        yield f" of {thing.device}"
    if thing.area:
        yield f" in {render_name(thing.area)}"
    yield f": {_state(thing.state)}"
    if thing.unit and _UNIT.fullmatch(thing.unit):
        yield f" {thing.unit}"
    if thing.age_s is not None:
        yield f", {ago(thing.age_s)}"


def _state(state: Json) -> str:
    match state:
        case None:
            return "unknown"
        case bool():
            return "on" if state else "off"
        case int() | float():
            return f"{state:.6g}"
        case str() if _TOKEN.fullmatch(state):
            return state
        case str():
            return "a text"
    return "several values"
