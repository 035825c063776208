"""The watchers of a hub, put together and kept going."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from chat.tasks import open_tasks, supervise
from hub_agent.parts import HubParts
from hub_live.captures.captures import Captures
from hub_live.events import Events
from hub_live.topics import Feed
from hub_live.watchers.backtest import Recordings
from hub_live.watchers.decisions.announcer import Announcer
from hub_live.watchers.decisions.evaluation import EvaluationLimits, Evaluations
from hub_live.watchers.decisions.model import WatcherModel
from hub_live.watchers.decisions.store import WatcherStore
from hub_live.watchers.engine import Engine
from hub_live.watchers.predicates import Clock
from hub_live.watchers.tables import WatcherRow
from hub_live.watchers.views import WatcherViews
from hub_live.watchers.watchers import Watchers
from hub_live.watchers.words.proposals import Proposals
from hub_live.watchers.words.sentence import Naming, plain
from hub_live.world import World


@asynccontextmanager
async def open_watchers(
    parts: HubParts, *, feed: Feed, events: Events, captures: Captures, world: World
) -> AsyncIterator[Watchers]:
    """Watch for as long as the context is open."""
    settings, registry = parts.settings, parts.registry

    def naming(user: str) -> Naming:
        return Naming(world, registry.directory.seen_by(user))

    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(open_tasks(contained=True))
        evaluations = Evaluations(
            store=WatcherStore(registry.store, instance=settings.instance),
            model=WatcherModel(parts.gateway, settings.household, settings.watchers),
            manager=parts.manager,
            announcer=Announcer(events, feed, tasks, lambda user, call: plain(naming(user).call(call))),
            registry=registry,
            limits=EvaluationLimits(settings.watchers),
            clock=Clock(settings.household),
        )
        engine = Engine(feed, evaluations, tasks, naming)
        rows: dict[str, WatcherRow] = {}
        watchers = Watchers(
            engine=engine,
            evaluations=evaluations,
            recordings=Recordings(feed, captures, settings.watchers),
            world=world,
            proposals=Proposals(registry.search, evaluations),
            settings=settings,
            views=WatcherViews(engine, rows),
            rows=rows,
        )
        stack.callback(feed.on_gap(engine.gap))
        stack.callback(parts.bus.link.on_connected(watchers.announce))
        registry.search.set_rules(watchers.meant)
        await watchers.load()
        await watchers.announce()
        supervise(tasks, engine.run, name="watchers")
        stack.push_async_callback(engine.save)
        yield watchers
