"""The embedded broker of this home, on loopback."""

from collections.abc import Callable
from contextlib import AsyncExitStack

from broker.embedded import EmbeddedBroker, EmbeddedSettings, Listener, open_embedded
from broker.files import only_one
from deploy.home import Home
from deploy.identity import load_identity
from deploy.running import chosen_by, forever


async def run_broker(home: Home, *, port: int, say: Callable[[str], None]) -> None:
    """Run the embedded broker until cancelled.

    Raises:
        ConfigError: If the port is taken or a file cannot be used.
    """
    async with AsyncExitStack() as stack:
        broker = await enter_broker(stack, home, port=port)
        say(f"Ready: broker at {broker.url}. Ctrl-C ends.")
        await forever()


async def enter_broker(stack: AsyncExitStack, home: Home, *, port: int) -> EmbeddedBroker:
    """Open the embedded broker for this home's hub, on loopback."""
    stack.enter_context(
        only_one(
            home.broker,
            what="a broker",
            hint="Stop it, or set another STRAWBERRY_HOME for a second household.",
        )
    )
    identity = await load_identity(home)
    settings = EmbeddedSettings(
        data_dir=home.broker,
        hub_id=identity.hub_id,
        hub_key=identity.key.public,
        listeners=(Listener(port=port),),
    )
    with chosen_by("--mqtt-port"):
        return await stack.enter_async_context(open_embedded(settings))
