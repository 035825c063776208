"""Topics that the hub has retained on brokers that are not its own, so that all can be emptied."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlmodel import Session, col, delete, select

from hub_agent.tables import HomeTopicRow
from hub_registry.storage.store import Store


@dataclass(frozen=True)
class Published:
    """A topic on a broker.

    Attributes:
        broker: Address of the broker.
    """

    broker: str
    topic: str


class HomeTopics:
    """Remembers what was published, also beyond a restart."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: set[Published] = set()

    async def record(self, published: Published) -> None:
        """Record that something is about to be published, before it is."""
        if published in self._known:
            return

        def work(session: Session) -> None:
            if session.get(HomeTopicRow, (published.broker, published.topic)) is None:
                session.add(HomeTopicRow(broker=published.broker, topic=published.topic))

        await self._store.write(work)
        self._known.add(published)

    async def list(self) -> list[Published]:
        """List all that was published and not emptied, on whatever broker."""

        def work(session: Session) -> list[Published]:
            rows = session.exec(select(HomeTopicRow).order_by(col(HomeTopicRow.broker), HomeTopicRow.topic))
            return [Published(row.broker, row.topic) for row in rows]

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
        self._known -= {Published(broker, topic) for topic in emptied}
