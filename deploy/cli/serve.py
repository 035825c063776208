"""The commands that stay: ``up``, ``broker run``, ``hub`` and ``spoke run``."""

import argparse
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pydantic import SecretStr

from contracts.errors import ConfigError
from deploy.home import Home
from deploy.logs import set_up_logging
from deploy.running import Stop, run_until_stopped

_TOKEN_VARIABLE = "HUB_DEVICE_TOKEN"  # noqa: S105  the name of a variable


def say(line: str) -> None:
    """Show a line to the person who started this."""
    print(line, flush=True)


def up(options: argparse.Namespace) -> None:
    """Run broker, hub and the local spoke."""
    from deploy.single_host import Ports, run_up

    set_up_logging(debug=options.debug)
    ports = Ports(http=options.http_port, mqtt=options.mqtt_port)

    async def main(stop: Stop) -> None:
        await run_up(Home.find(), ports=ports, spoke=not options.no_spoke, say=say, stop=stop)

    run_until_stopped(main)


def run_broker(options: argparse.Namespace) -> None:
    """Run the embedded broker alone."""
    from deploy.single_host import run_broker_alone

    set_up_logging(debug=options.debug)

    async def main(stop: Stop) -> None:
        await run_broker_alone(Home.find(), port=options.mqtt_port, say=say, stop=stop)

    run_until_stopped(main)


def run_hub(options: argparse.Namespace) -> None:
    """Run the hub alone."""
    from deploy.single_host import run_hub_alone

    set_up_logging(debug=options.debug)

    async def main(stop: Stop) -> None:
        await run_hub_alone(
            Home.find(), broker_url=options.broker, http_port=options.http_port, say=say, stop=stop
        )

    run_until_stopped(main)


def run_spoke(options: argparse.Namespace) -> None:
    """Join a hub if need be, and offer skills to it."""
    from spoke.app import run
    from spoke.settings import SpokeSettings

    set_up_logging(debug=options.debug)
    home = Home.find()
    token = _enrolment_token(options.token_file)
    folders = tuple(Path(folder).absolute() for folder in options.skills or [home.skills])
    for folder in folders:
        if folder == home.skills:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise ConfigError(f"there is no folder {folder}", hint="Make it, or name another with --skills.")
    settings = SpokeSettings(
        home=home.directory,
        hub_url=options.hub,
        hub_key=options.hub_key,
        skills=folders,
        samples=options.samples,
    )

    async def main(stop: Stop) -> None:
        if options.with_parent:
            _stop_with_parent(stop.set)
        await run(settings, token=token, stop=stop)

    run_until_stopped(main)


def _enrolment_token(file: str | None) -> SecretStr | None:
    """Take the enrolment token from where no other user can see it: never from an argument."""
    if file == "-":
        text = sys.stdin.readline()
    elif file is not None:
        try:
            text = Path(file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the token file {file}: {error}") from None
    else:
        # Taken out of the environment, so that no skill and no child of one finds it there.
        text = os.environ.pop(_TOKEN_VARIABLE, "")
    return SecretStr(text.strip()) if text.strip() else None


def _stop_with_parent(stop: Callable[[], None]) -> None:
    """Stop once the other end of standard input is closed: then the process that started us is gone."""
    import asyncio

    loop = asyncio.get_running_loop()

    def wait() -> None:
        while sys.stdin.buffer.read(1):
            pass
        loop.call_soon_threadsafe(stop)

    threading.Thread(target=wait, name="watch parent", daemon=True).start()
