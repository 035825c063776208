"""Topics that the hub has retained on brokers that are not its own, so that all can be emptied."""

from collections.abc import Iterable

from sqlmodel import Session, col, delete, select

from hub_agent.tables import HomeTopicRow
from hub_registry.storage.store import Store


class HomeTopics:
    """Remembers what was published, also beyond a restart."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: set[tuple[str, str]] = set()

    async def record(self, broker: str, topic: str) -> None:
        """Record that a topic is about to be published on the broker of an address, before it is."""
        if (broker, topic) in self._known:
            return

        def work(session: Session) -> None:
            if session.get(HomeTopicRow, (broker, topic)) is None:
                session.add(HomeTopicRow(broker=broker, topic=topic))

        await self._store.write(work)
        self._known.add((broker, topic))

    async def list(self) -> list[tuple[str, str]]:
        """List the broker and the topic of all that was published and not emptied."""

        def work(session: Session) -> list[tuple[str, str]]:
            rows = session.exec(select(HomeTopicRow).order_by(col(HomeTopicRow.broker), HomeTopicRow.topic))
            return [(row.broker, row.topic) for row in rows]

        return await self._store.read(work)

    async def forget(self, broker: str, topics: Iterable[str]) -> None:
        """Forget what is empty now."""
        emptied = list(topics)

        def work(session: Session) -> None:
            session.exec(
                delete(HomeTopicRow).where(
                    col(HomeTopicRow.broker) == broker, col(HomeTopicRow.topic).in_(emptied)
                )
            )

        await self._store.write(work)
        self._known -= {(broker, topic) for topic in emptied}
