"""The spoke's own way in for those who talk to it, and what answers them, put together."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from bus.ports import listen
from chat.http.server import serve
from chat.http.streams import Connections
from chat.standby import Standby
from chat.tasks import open_tasks
from contracts.errors import StrawberryError
from contracts.wire import Json
from spoke.chat.http import ChatRoutes, announced, provide_token
from spoke.membership.enrolment import Enrolment
from spoke.presence.clock import HubClock
from spoke.settings import ChatSettings, SpokeSettings
from spoke.skill_host import SkillHost

if TYPE_CHECKING:
    from spoke.chat.agent import Agent

_HOST: Final = "127.0.0.1"
_HISTORY_FILE: Final = "history.db"


@dataclass(frozen=True)
class Talk:
    """What talking to this spoke needs of it.

    Attributes:
        enrolment: Gives what is known of the hub now.
        epoch: Of this start.
        connected: Whether the spoke is on the bus.
    """

    settings: SpokeSettings
    enrolment: Callable[[], Enrolment]
    epoch: int
    host: SkillHost
    clock: HubClock
    connected: Callable[[], bool]

    @property
    def device(self) -> str:
        """This device's id."""
        return self.enrolment().device


@asynccontextmanager
async def open_talk(talk: Talk, chat: ChatSettings) -> AsyncIterator[str]:
    """Serve those who talk to this spoke until the block is left; gives the address.

    What answers is loaded with the first message.

    Raises:
        ConfigError: If the port is taken, or a file cannot be written.
    """
    directory = talk.settings.directory
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(listen(_HOST, chat.port, purpose="chat"))
        tasks = await stack.enter_async_context(open_tasks())
        loaded: list[Agent] = []
        agent = Standby(partial(_open_agent, talk, chat, loaded), tasks=tasks, name="agent")

        def health() -> dict[str, Json]:
            return {
                "status": "ok" if talk.connected() else "degraded",
                "version": talk.settings.version,
                "device": talk.device,
                "broker": {"connected": talk.connected()},
            }

        routes = ChatRoutes(
            agent.get,
            device=talk.device,
            token=provide_token(directory),
            connections=Connections(tasks),
            health=health,
        )
        await stack.enter_async_context(serve(routes.app(max_body_bytes=chat.max_body_bytes), listener))

        def cancel_turns() -> None:
            for each in loaded:
                each.cancel_all()

        # The server waits for its streams, and these end with their turns.
        stack.callback(cancel_turns)
        url = f"http://{_HOST}:{listener.getsockname()[1]}"
        stack.enter_context(announced(directory, url, device=talk.device))
        if (directory / _HISTORY_FILE).exists():
            # What was said before an abrupt end may be news to the hub.
            agent.start()
        yield url


@asynccontextmanager
async def _open_agent(talk: Talk, chat: ChatSettings, loaded: "list[Agent]") -> AsyncIterator["Agent"]:
    from spoke.chat.agent import Agent, Means
    from spoke.chat.history import open_history
    from spoke.chat.hub_turn import HubTurns
    from spoke.chat.ledger import SpokeLedger
    from spoke.chat.own_skills import OwnSkills
    from spoke.chat.reach import Reach
    from spoke.chat.sync import HistorySync, HubSyncClient

    enrolment = talk.enrolment()
    async with AsyncExitStack() as stack:
        history = await stack.enter_async_context(
            open_history(
                talk.settings.directory, home=enrolment.hub_id, device=talk.device, clock=talk.clock.now
            )
        )
        closing = stack.enter_context(ExitStack())
        tasks = await stack.enter_async_context(open_tasks())
        skills = OwnSkills(
            talk.host.registrations, device=talk.device, profile=lambda: talk.enrolment().profile
        )
        closing.callback(skills.close)
        sync = HistorySync(history, HubSyncClient(talk.enrolment))
        ledger = SpokeLedger(history, wrote=sync.wake)
        tasks.create_task(sync.run(), name="history")

        async def tell_news() -> None:
            if ledger.has_news:
                # What is written down meanwhile is news again.
                ledger.has_news, is_told = False, False
                try:
                    # Where it fails, the message goes all the same, with what was said before it.
                    with suppress(StrawberryError):
                        await sync.sync_now()
                        is_told = True
                finally:
                    ledger.has_news = ledger.has_news or not is_told

        hub = HubTurns(
            talk.enrolment,
            reach=Reach(talk.enrolment, settings=chat, tasks=tasks),
            settings=chat,
            prepare=tell_news,
        )
        means = Means(
            settings=talk.settings,
            skills=skills,
            host=talk.host,
            owner=enrolment.claims(enrolment.token).own,
            epoch=talk.epoch,
            hub=hub,
            ledger=ledger,
        )
        agent = Agent(means, chat=chat, tasks=tasks)
        loaded.append(agent)
        stack.callback(loaded.remove, agent)
        yield agent
