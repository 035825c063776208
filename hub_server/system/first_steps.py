"""First steps of a new home: access from a phone, Home Assistant, and the steps that a person left out."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, SecretStr, ValidationError

from agent_core.prompt import Household
from chat.operations import ADMIN, Needs, Resource
from contracts.addresses import host_of, is_loopback
from contracts.answers.system import (
    FoundHomeAssistant,
    HomeAssistantRules,
    HomeAssistantTrial,
)
from contracts.errors import InvalidMessage
from contracts.wire import Strict
from hub_registry.access.bearer import Bearer
from hub_server import limits
from hub_server.system.host import LanAccess
from hub_server.system.operations import System, explained
from identity.files import write_private

_log = logging.getLogger(__name__)

Step = Literal["model", "chat", "phone", "device", "home-assistant", "people"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)

_IN_PERSON: Final = Needs(("admin",), admin=True, confirms=True, password=True)
"""Who can connect, and which program acts on behalf of whom, an admin decides with the password."""
_RESTARTS: Final = replace(_IN_PERSON, password=False)


class LanState(LanAccess):
    """Who can connect to the hub, and how other machines do.

    Attributes:
        url: Address for other machines; empty where they cannot connect.
        fingerprint: SHA-256 of the hub's certificate; empty without TLS.
        devices: Whether devices on other machines reach the broker.
    """

    url: str
    fingerprint: str
    devices: bool


class SkippedSteps(Strict):
    """The steps that a person left out."""

    steps: Annotated[list[Step], Field(max_length=len(STEPS))] = []


first_steps: Resource[System, Bearer] = Resource("first-steps", "/api/system")


@first_steps.get(ADMIN, "/lan")
async def show_lan(system: System, asking: Bearer) -> LanState:
    """Return who can connect to the hub; `obstacle` is why that cannot be changed here."""
    return _state(system, asking)


@first_steps.put(_IN_PERSON, "/lan")
async def switch_lan(system: System, asking: Bearer, enabled: bool) -> LanState:
    """Allow or end access for other machines over TLS, as `--lan` does; the hub restarts.

    It writes `[lan]` of `strawberry.toml`.
    """
    with explained():
        await asyncio.to_thread(system.host.switch_lan, enabled)
    act = "allow other machines to connect" if enabled else "let only this machine connect"
    asking.note(act)
    _log.warning("%s, by %s", act, asking.user.id)
    _restart(system)
    return _state(system, asking)


@first_steps.get(ADMIN, "/household")
async def show_household(system: System, asking: Bearer) -> Household:
    """Return where the home is, its language and units, and the rules for the assistant."""
    with explained():
        return await asyncio.to_thread(system.host.read_settings, Household)


@first_steps.patch(_RESTARTS, "/household")
async def change_household(system: System, asking: Bearer, household: Household) -> Household:
    """Change `[household]` of `strawberry.toml`, where the home is among it; the hub restarts.

    What is left out stays; `null` for both coordinates removes them.
    """
    with explained():
        written = await asyncio.to_thread(system.host.write_settings, household)
    asking.note("change the settings of the household")
    _restart(system)
    return written


@first_steps.get(ADMIN, "/home-assistant/found")
async def find_home_assistants(system: System, asking: Bearer) -> list[FoundHomeAssistant]:
    """Look for Home Assistants that announce themselves in the local network, for two seconds."""
    # Multicast DNS, 17 ms to import: only where a person looks.
    from hub_home_assistant.inward.trial import look_around

    return await look_around()


@first_steps.put(_IN_PERSON, "/home-assistant")
async def connect_home_assistant(
    system: System,
    asking: Bearer,
    url: Annotated[str, Field(max_length=500)],
    token: Annotated[SecretStr, Field(max_length=4_000)],
) -> HomeAssistantTrial:
    """Try address and token of Home Assistant, then write them into `strawberry.toml` and `.env`.

    Nothing is written if Home Assistant does not answer, or refuses the token. The hub uses them within
    seconds.
    """
    with explained():
        found = await system.host.connect_home_assistant(url.strip(), token)
    asking.note("connect Home Assistant")
    return found


@first_steps.get(ADMIN, "/home-assistant")
async def show_rules(system: System, asking: Bearer) -> HomeAssistantRules:
    """Return which entities of Home Assistant are used, and which are changed only after a confirmation."""
    with explained():
        return await asyncio.to_thread(system.host.read_settings, HomeAssistantRules)


@first_steps.patch(_IN_PERSON, "/home-assistant")
async def change_rules(system: System, asking: Bearer, rules: HomeAssistantRules) -> HomeAssistantRules:
    """Change these rules in `[home_assistant]` of `strawberry.toml`; the hub uses them within seconds.

    What is left out stays.
    """
    with explained():
        written = await asyncio.to_thread(system.host.write_settings, rules)
    asking.note("change what Home Assistant may do unasked")
    return written


@first_steps.put(_IN_PERSON, "/home-broker")
async def connect_home_broker(
    system: System,
    asking: Bearer,
    url: Annotated[str, Field(min_length=1, max_length=500)],
    username: Annotated[str, Field(max_length=500)] = "",
    password: Annotated[SecretStr, Field(max_length=4_000)] | None = None,
) -> None:
    """Log in to a broker, write it into `[home_broker]` and the password into `.env`; the hub restarts.

    Nothing is written if no broker answers, or if it refuses the login.
    """
    if password is not None and not username.strip():
        # Without a name it would not be sent, and so not be tried.
        raise InvalidMessage("a password needs a user name", hint="Fill in both, or none.")
    with explained():
        await system.host.connect_home_broker(url.strip(), username.strip(), password)
    asking.note("connect the home broker")
    _restart(system)


@first_steps.get(ADMIN, "/skipped")
async def list_skipped(system: System, asking: Bearer) -> SkippedSteps:
    """List the first steps that a person left out."""
    try:
        return SkippedSteps.model_validate_json(_file(system).read_bytes())
    except (OSError, ValidationError):
        return SkippedSteps()


@first_steps.put(ADMIN, "/skipped")
async def skip(system: System, asking: Bearer, skipped: SkippedSteps) -> SkippedSteps:
    """Replace the list of first steps that a person left out."""
    write_private(_file(system), skipped.model_dump_json().encode())
    return skipped


def _restart(system: System) -> None:
    asyncio.get_running_loop().call_later(limits.RESTART_S, system.host.restart)


def _file(system: System) -> Path:
    return system.parts.settings.directory / "skipped_steps.json"


def _state(system: System, asking: Bearer) -> LanState:
    access, registry = system.host.lan, system.parts.registry.settings
    url = asking.hub_url(registry.url)
    return LanState(
        **{**vars(access), "phrases": None},
        url="" if is_loopback(host_of(url)) else url,
        fingerprint=system.fingerprint(),
        devices=any(not is_loopback(host_of(each)) for each in registry.bus.brokers),
    )
