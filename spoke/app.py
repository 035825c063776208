"""A running spoke: joins its hub, loads its skills, and serves calls until it is stopped."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import SecretStr

from agent_core.models.entries import GatewayKind, Models
from agent_core.skills.loading.exposure import LoadProblem
from bus.link import Link, open_link
from bus.rpc import Responder
from chat.tasks import open_tasks, supervise
from identity.envelope import Seal
from identity.files import is_held, only_one
from spoke.hub_calls import HubCalls
from spoke.membership.enrolment import FILE_NAME, Enrolment
from spoke.membership.joining import join
from spoke.membership.membership import Membership
from spoke.presence.clock import HubClock, next_epoch
from spoke.presence.hub_status import HubPresence
from spoke.presence.presence import Presence
from spoke.presence.publishing import SkillOutlet
from spoke.presence.status import OwnStatus, manifest_of, sealed_registrations
from spoke.presence.wake_words import WakeWords
from spoke.settings import SpokeSettings
from spoke.skill_host import SkillHost

if TYPE_CHECKING:
    from spoke.chat.server import ChatServer


@dataclass(frozen=True)
class Spoke:
    """A spoke that is running.

    Attributes:
        device: Its id in the home.
        epoch: Of this start.
        url: Address of its chat API on this machine; None if it has none.
    """

    device: str
    epoch: int
    url: str | None
    _host: SkillHost = field(repr=False)
    _link: Link = field(repr=False)
    _presence: Presence = field(repr=False)
    _membership: Membership = field(repr=False)
    _server: "ChatServer | None" = field(repr=False)

    @property
    def connected(self) -> bool:
        return self._link.connected

    @property
    def skills(self) -> tuple[str, ...]:
        return self._host.available

    @property
    def problems(self) -> tuple[LoadProblem, ...]:
        return tuple(self._host.problems)

    @property
    def name(self) -> str:
        # Until name and key are known, it is the id.
        return self._membership.enrolment.shown

    @property
    def problem(self) -> str | None:
        return self._membership.problem

    def reload_models(self, models: Models, *, kind: GatewayKind) -> bool:
        """Ask other models from the next message on; return whether they are others."""
        return self._server is not None and self._server.reload_models(models, kind=kind)

    async def announced(self) -> None:
        """Wait until status and skills have been published for the first time."""
        await self._presence.announced.wait()


@dataclass(frozen=True)
class Loaded:
    """The skills of a device, loaded, and where they publish."""

    device: str
    outlet: SkillOutlet
    host: SkillHost
    calls: HubCalls


async def load(settings: SpokeSettings, *, device: str) -> Loaded:
    """Load the skills of a device."""
    outlet, calls = SkillOutlet(device=device), HubCalls()
    host = await SkillHost.load(settings, device=device, sink=outlet.publish, home=calls)
    return Loaded(device, outlet, host, calls)


async def load_ahead(settings: SpokeSettings) -> Loaded | None:
    """Load the skills of a device that has joined and that no other process serves, for `open_spoke`."""
    stored = Enrolment.load(settings.directory / FILE_NAME)
    if stored is None or is_held(settings.directory):
        return None
    return await load(settings, device=stored.device)


@asynccontextmanager
async def open_spoke(
    settings: SpokeSettings, *, token: SecretStr | None = None, loaded: Loaded | None = None
) -> AsyncIterator[Spoke]:
    """Run a spoke for as long as the context is open.

    A device that has not joined yet waits for the hub; one that has waits a few seconds for the broker
    and then keeps trying in the background. Leaving refuses new calls, lets running ones end, and
    publishes that the spoke is offline.

    Args:
        token: An enrolment token; needed where the device has not joined yet.
        loaded: Skills that were loaded ahead; used if they are this device's.

    Raises:
        ConfigError: If the settings cannot be used, or another spoke runs with this home.
        Unauthorized: If the hub refuses the token.
        HubUntrusted: If the certificate of a hub that is to be joined does not hold.
    """
    async with AsyncExitStack() as stack:
        # Two spokes of one identity would push each other off the bus.
        stack.enter_context(
            only_one(
                settings.directory,
                what="a spoke",
                hint="Stop it, or set another STRAWBERRY_HOME for a second device.",
            )
        )
        clock = HubClock()
        identity = await join(settings, token=token, clock=clock)
        enrolment = identity.enrolment
        membership = Membership(
            enrolment, key=identity.key, settings=settings, clock=clock, is_confirmed=identity.is_confirmed
        )
        device, seal = enrolment.device, Seal(enrolment.hub_id, identity.key)
        if loaded is None or loaded.device != device:
            loaded = await load(settings, device=device)
        outlet, host = loaded.outlet, loaded.host
        loaded.calls.connect(lambda: membership.enrolment, identity.key)
        stack.callback(loaded.calls.close)
        await stack.enter_async_context(host)
        outlet.serve(host.publishing)
        registrations = sealed_registrations(seal, device, host.registrations)
        status = OwnStatus(
            seal,
            device=device,
            epoch=next_epoch(settings.directory),
            manifest=manifest_of(registrations),
        )
        server: ChatServer | None = None
        link = open_link(membership.link_settings(), will=status.begin, wait_s=settings.broker_wait_s)
        hubs = HubPresence(
            enrolment.hub_id,
            enrolment.hub_key,
            on_words=lambda: (
                server.speech.learn() if server is not None and server.speech is not None else None
            ),
        )
        presence = Presence(
            link,
            device=device,
            status=status,
            registrations=registrations,
            hubs=hubs,
            is_enrolled=membership.is_enrolled,
            settings=settings,
            voice=lambda: server.speech.state if server is not None and server.speech is not None else None,
        )
        responder = Responder(
            link,
            seal,
            device=device,
            epoch=status.epoch,
            hub_key=enrolment.hub_key,
            executor=host.execute,
            admission=host.admit,
            on_renamed=membership.renamed,
            on_untimely=membership.untimely,
            clock=clock,
        )
        words = None
        if settings.voice.enabled:
            words = WakeWords(
                link,
                seal,
                device=device,
                hub_key=enrolment.hub_key,
                clock=clock,
                hub_is_online=lambda: hubs.is_online,
            )
            await words.listen()
        await presence.listen()
        # Before the link connects, so that one SUBSCRIBE carries everything.
        await stack.enter_async_context(responder)
        # It already looks on while the link waits for the broker: the first login may be refused.
        tasks = await stack.enter_async_context(open_tasks())
        tasks.create_task(membership.run(link), name="membership")
        url = None
        if settings.chat is not None:
            # Before the broker is waited for: a spoke answers people with or without it.
            from spoke.chat import server as chat_server

            server = chat_server.ChatServer(
                settings=settings,
                chat=settings.chat,
                enrolment=lambda: membership.enrolment,
                key=identity.key,
                epoch=status.epoch,
                host=host,
                clock=clock,
                connected=lambda: link.connected,
                voice_changed=presence.beat,
                may_answer=words.may_answer if words is not None else None,
                hub_online=lambda: hubs.is_online,
            )
            url = await stack.enter_async_context(server.open())
        await stack.enter_async_context(link)
        stack.push_async_callback(presence.leave)
        tasks = await stack.enter_async_context(open_tasks())

        def skills_changed() -> None:
            outlet.serve(host.publishing)
            presence.register(sealed_registrations(seal, device, host.registrations))
            if server is not None:
                server.skills_changed()

        tasks.create_task(presence.run(), name="presence")
        host.expect, host.changed = outlet.serve, skills_changed
        supervise(tasks, host.follow, name="load saved skills")
        tasks.create_task(outlet.run(link), name="what skills publish")
        # First of all: calls of turns that run here may end before their turns are stopped.
        stack.push_async_callback(host.stop, grace_s=settings.stop_grace_s)
        yield Spoke(
            device=device,
            epoch=status.epoch,
            url=url,
            _host=host,
            _link=link,
            _presence=presence,
            _membership=membership,
            _server=server,
        )
