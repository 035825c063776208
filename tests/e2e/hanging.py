"""The ``strawberry`` command with a fast watch, whose event loop hangs at SIGUSR1."""

import signal
import threading

from deploy import limits

if __name__ == "__main__":
    limits.WATCH_TICK_S = 1.0

    def wait_without_end(*_: object) -> None:
        threading.Event().wait()

    signal.signal(signal.SIGUSR1, wait_without_end)
    from deploy.cli.main import main

    raise SystemExit(main())
