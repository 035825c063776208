"""Looks at what speech needs: engines, models, servers, sound card."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from contracts.errors import StrawberryError
from contracts.phrases import Phrase
from deploy.directory import Home
from deploy.doctor.checks import Check, failed, passed
from deploy.settings.settings import read_voice

if TYPE_CHECKING:
    from voice.wyoming.discovery import Domain


def check_voice(home: Home) -> Iterator[Check]:
    """Look at it where speech is switched on. The sound card is not opened: a spoke may be using it."""
    from voice.opening import open_engines

    settings = read_voice(home)
    if not settings.enabled:
        return
    try:
        engines = open_engines(settings)
    except StrawberryError as error:
        yield failed("voice", error.message, error.hint)
        return
    used = ", ".join(dict.fromkeys((settings.wake_engine, *engines.speech_to_text, *engines.text_to_speech)))
    yield passed("voice", used)
    domains: dict[Domain, Iterable[str]] = {"asr": engines.speech_to_text, "tts": engines.text_to_speech}
    for domain, servers in domains.items():
        yield from [asyncio.run(_server(name, domain)) for name in servers if name.startswith("wyoming")]
    names = (settings.microphone, settings.loudspeaker)
    if all(name.startswith("file:") for name in names):
        return
    try:
        from voice.sound.card import devices

        found = devices()
    except StrawberryError as error:
        yield failed("sound", error.message, error.hint)
        return
    for what, name, fitting in (
        ("microphone", settings.microphone, [each.name for each in found if each.inputs]),
        ("loudspeaker", settings.loudspeaker, [each.name for each in found if each.outputs]),
    ):
        if name.startswith("file:"):
            continue
        is_there = any(name.casefold() in each.casefold() for each in fitting)
        missing = (
            Phrase("there is no {what} {name!r}", what=what, name=name) if name else f"there is no {what}"
        )
        hint = "Plug one in, let this user use it (group audio), or set it in [voice]."
        detail = name or ", ".join(fitting[:3])
        yield Check(what, ok=is_there, detail=detail if is_there else missing, hint="" if is_there else hint)


async def _server(name: str, domain: "Domain") -> Check:
    """Ask a Wyoming server whether it has what the settings want of it."""
    from voice.engines.wyoming import server_of
    from voice.wyoming.connection import Address
    from voice.wyoming.discovery import offers

    where, title = server_of(name.partition("://")[2], domain), "Wyoming server"
    if not isinstance(where, Address):
        try:
            return passed(title, str(await where()))
        except StrawberryError as error:
            return failed(title, error.message, error.hint)
    if await offers(where, domain):
        return passed(title, str(where))
    what = "speech to text" if domain == "asr" else "text to speech"
    hint = "Check that it runs, and its address in [voice]."
    return failed(
        title, Phrase("{server} does not answer as a server for {what}", server=where, what=what), hint
    )
