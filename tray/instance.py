"""One tray for each data directory; a second start shows the window of the first."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from PySide6.QtNetwork import QLocalServer, QLocalSocket

from contracts.errors import ConfigError
from identity.files import is_held, only_one
from tray import limits

_HINT: Final = "Stop it, or set another STRAWBERRY_HOME for a second one."


def show_running(directory: Path) -> bool:
    """Ask the tray that runs already to show its window; return whether there is one.

    Raises:
        ConfigError: If it does not take the wish.
    """
    if not is_held(directory):
        return False
    socket = QLocalSocket()
    socket.connectToServer(_name(directory))
    if not socket.waitForConnected(limits.OTHER_TRAY_MS):
        raise ConfigError("the tray that runs already does not answer", hint="Quit it, then start it again.")
    # To connect is to wish for the window: there is nothing else to say.
    socket.disconnectFromServer()
    return True


@contextmanager
def only_tray(directory: Path, wished: Callable[[], None]) -> Iterator[None]:
    """Hold the place of the one tray; ``wished`` is called when another start wants the window.

    Raises:
        ConfigError: If there is another one, or the data directory has too long a path.
    """
    with only_one(directory, what="a tray", hint=_HINT):
        # What a tray that was killed has left.
        QLocalServer.removeServer(_name(directory))
        server = QLocalServer()
        server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)

        def answer() -> None:
            server.nextPendingConnection().close()
            wished()

        server.newConnection.connect(answer)
        if not server.listen(_name(directory)):
            # A path of a socket has some hundred bytes.
            raise ConfigError(
                f"the tray cannot listen at {_name(directory)}: {server.errorString()}",
                hint="Set STRAWBERRY_HOME to a directory with a shorter path.",
            )
        try:
            yield
        finally:
            server.close()


def _name(directory: Path) -> str:
    return str(directory / "window")
