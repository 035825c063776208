"""The embedded broker of this home, on loopback."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from broker.embedded import EmbeddedBroker, EmbeddedSettings, open_embedded
from deploy.home import Home
from deploy.identity import load_identity
from deploy.running import enter, forever


async def run_broker(home: Home, *, port: int, say: Callable[[str], None]) -> None:
    """Run the embedded broker until cancelled.

    Raises:
        ConfigError: If the port is taken or a file cannot be used.
    """
    async with AsyncExitStack() as stack:
        broker = await enter(stack, open_broker(home, port=port), option="--mqtt-port")
        say(f"Ready: broker at {broker.url}. Ctrl-C ends.")
        await forever()


@asynccontextmanager
async def open_broker(home: Home, *, port: int) -> AsyncIterator[EmbeddedBroker]:
    """Run the embedded broker for this home's hub, on loopback."""
    identity = await load_identity(home)
    settings = EmbeddedSettings(
        data_dir=home.broker, hub_id=identity.hub_id, hub_key=identity.key.public, port=port
    )
    async with open_embedded(settings) as broker:
        yield broker
