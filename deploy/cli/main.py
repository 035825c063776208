"""Parse the command line and run one command.

Only what a command needs is imported, and only once it is known which: ``strawberry chat`` has to
have its request on the wire before a person notices a wait.
"""

import argparse
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

from contracts.errors import StrawberryError

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_EPILOG = """\
Files lie in ~/.strawberry; STRAWBERRY_HOME moves them. STRAWBERRY_TOKEN is the token for --hub.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that these words ask for.

    Returns:
        The exit code: 0, 1 after an error, 130 after Ctrl-C.
    """
    _open_streams()
    options = _parser().parse_args(arguments, argparse.Namespace(json=False, debug=False))
    module, _, function = options.run.partition(":")
    try:
        command: Callable[[argparse.Namespace], int | None] = getattr(
            importlib.import_module(module), function
        )
        return command(options) or 0
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader went away (`strawberry skills list | head`): nothing is wrong, and nothing
        # more may be written, not even by the interpreter's own flush at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except StrawberryError as error:
        if options.debug:
            traceback.print_exc()
        print(f"strawberry: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        return 1
    except OSError as error:
        # A full disk, a directory that cannot be written: nothing that a traceback explains better.
        if options.debug:
            traceback.print_exc()
        where = f"{error.filename}: " if error.filename else ""
        print(f"strawberry: {where}{error.strerror or error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    shared = common.add_argument_group("options of every command")
    # Without a default, a command does not undo what stood in front of it.
    never_said = argparse.SUPPRESS
    shared.add_argument("--json", action="store_true", default=never_said, help="print the result as JSON")
    shared.add_argument(
        "--debug", action="store_true", default=never_said, help="show tracebacks and debug logs"
    )
    client = argparse.ArgumentParser(add_help=False, parents=[common])
    client.add_argument("--hub", metavar="URL", help="a hub other than the one running here")

    parser = argparse.ArgumentParser(
        prog="strawberry",
        description="One assistant for a whole home, over MQTT.",
        epilog=_EPILOG,
        parents=[common],
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and end")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_servers(commands, common)
    _add_talk(commands, client)
    _add_devices(commands, client)
    _add_skills(commands, client)

    doctor = commands.add_parser("doctor", parents=[client], help="check this installation")
    doctor.set_defaults(run="deploy.cli.doctor:doctor")
    return parser


def _open_streams() -> None:
    """Make the three streams ones that every command can use.

    One that the caller has closed is None in Python; and a letter that the locale does not know is
    to look odd, not to be an error.
    """
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115  for as long as the process
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class _Version(argparse.Action):
    """Prints the version, looked up only when somebody asks: reading package metadata takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"strawberry {version('strawberry-home')}")
        parser.exit()


def _add_servers(commands: _Commands, common: argparse.ArgumentParser) -> None:
    up = commands.add_parser("up", parents=[common], help="run broker, hub and a local spoke, on loopback")
    up.add_argument(
        "--http-port", type=_port, default=8321, metavar="N", help="default 8321; 0 for any free one"
    )
    up.add_argument(
        "--mqtt-port", type=_port, default=1883, metavar="N", help="default 1883; 0 for any free one"
    )
    up.add_argument("--no-spoke", action="store_true", help="without the local spoke")
    up.set_defaults(run="deploy.cli.serve:up")

    broker = commands.add_parser("broker", help="run the embedded broker alone")
    actions = broker.add_subparsers(title="actions", metavar="ACTION", required=True)
    run = actions.add_parser("run", parents=[common], help="run the embedded broker alone, on loopback")
    run.add_argument(
        "--mqtt-port", type=_port, default=1883, metavar="N", help="default 1883; 0 for any free one"
    )
    run.set_defaults(run="deploy.cli.serve:run_broker")

    hub = commands.add_parser("hub", parents=[common], help="run the hub alone")
    hub.add_argument("--broker", metavar="URL", default="mqtt://127.0.0.1:1883", help="default %(default)s")
    hub.add_argument(
        "--http-port", type=_port, default=8321, metavar="N", help="default 8321; 0 for any free one"
    )
    hub.set_defaults(run="deploy.cli.serve:run_hub")

    spoke = commands.add_parser("spoke", help="run a spoke: the skills of this machine")
    actions = spoke.add_subparsers(title="actions", metavar="ACTION", required=True)
    run = actions.add_parser(
        "run",
        parents=[common],
        help="join a hub and offer the skills of a folder to it",
        description="At the first start the enrolment token is taken from HUB_DEVICE_TOKEN, --token-file or "
        "standard input; afterwards the spoke uses what it stored.",
    )
    run.add_argument("--hub", metavar="URL", required=True, help="for example http://192.168.1.10:8321")
    run.add_argument(
        "--hub-key", metavar="F", help="fingerprint of the hub's key, as 'devices add' prints it"
    )
    run.add_argument(
        "--skills",
        metavar="DIR",
        action="append",
        help="folder of skills, may be given several times; default: skills in the data directory",
    )
    run.add_argument("--samples", action="store_true", help="offer the sample skills too")
    run.add_argument(
        "--token-file", metavar="FILE", help="file with the enrolment token; - for standard input"
    )
    # `strawberry up` starts its spoke with it: the spoke ends when standard input is closed.
    run.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)
    run.set_defaults(run="deploy.cli.serve:run_spoke")


def _add_talk(commands: _Commands, client: argparse.ArgumentParser) -> None:
    chat = commands.add_parser("chat", parents=[client], help="talk to the assistant")
    chat.add_argument(
        "words", nargs="*", metavar="[AGENT] MESSAGE", help="one quoted message; without it, a conversation"
    )
    chat.add_argument("--device", help="the device to act on when the message names none")
    chat.set_defaults(run="deploy.cli.chat:chat")

    call = commands.add_parser("call", parents=[client], help="call a method of a skill")
    call.add_argument(
        "device", metavar="DEVICE", help="name, key or id of the device; 'hub' for any that has it"
    )
    call.add_argument("method", metavar="Skill.method")
    call.add_argument("arguments", nargs="*", metavar="KEY=VALUE", help="JSON, or plain text")
    call.set_defaults(run="deploy.cli.skills:call")

    run = commands.add_parser(
        "exec", parents=[client], help="run Python in the sandbox as the assistant would"
    )
    run.add_argument(
        "code",
        metavar="CODE",
        help="for example 'devices.bedroom_pc.LampSkill.turn_on()'; - for standard input",
    )
    run.set_defaults(run="deploy.cli.skills:execute")


def _add_devices(commands: _Commands, client: argparse.ArgumentParser) -> None:
    devices = commands.add_parser("devices", help="list, add, rename and revoke devices")
    actions = devices.add_subparsers(title="actions", metavar="ACTION", required=True)
    each = actions.add_parser("list", parents=[client], help="all devices, and whether they are there")
    each.set_defaults(run="deploy.cli.devices:list_devices")
    add = actions.add_parser("add", parents=[client], help="make an enrolment token for a new spoke")
    add.add_argument("name", metavar="NAME", help="what people call it, for example 'Bedroom PC'")
    add.set_defaults(run="deploy.cli.devices:add")
    rename = actions.add_parser("rename", parents=[client], help="change the display name; the id stays")
    rename.add_argument("device", metavar="DEVICE")
    rename.add_argument("name", metavar="NAME")
    rename.set_defaults(run="deploy.cli.devices:rename")
    revoke = actions.add_parser("revoke", parents=[client], help="lock a device out at once and for good")
    revoke.add_argument("device", metavar="DEVICE")
    revoke.set_defaults(run="deploy.cli.devices:revoke")

    tokens = commands.add_parser("tokens", help="tokens for programs")
    actions = tokens.add_subparsers(title="actions", metavar="ACTION", required=True)
    add = actions.add_parser("add", parents=[client], help="make a token with which a program acts as you")
    add.add_argument("name", metavar="NAME", help="what the token is for, for example node-red")
    add.add_argument("--scope", default="chat", metavar="SCOPES", help="of chat, call; default %(default)s")
    add.set_defaults(run="deploy.cli.devices:add_token")


def _add_skills(commands: _Commands, client: argparse.ArgumentParser) -> None:
    skills = commands.add_parser("skills", help="what the devices can do")
    actions = skills.add_subparsers(title="actions", metavar="ACTION", required=True)
    each = actions.add_parser("list", parents=[client], help="every method of every device")
    each.set_defaults(run="deploy.cli.skills:list_skills")
    search = actions.add_parser("search", parents=[client], help="the methods that fit some words")
    search.add_argument("query", nargs="+", metavar="WORD")
    search.set_defaults(run="deploy.cli.skills:search")
    describe = actions.add_parser(
        "describe", parents=[client], help="signature and documentation of a method"
    )
    describe.add_argument(
        "path", metavar="PATH", help="for example devices.bedroom_pc.LampSkill.turn_on, or LampSkill.turn_on"
    )
    describe.set_defaults(run="deploy.cli.skills:describe")


def _port(text: str) -> int:
    try:
        port = int(text)
    except ValueError:
        port = -1
    if not 0 <= port <= 0xFFFF:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return port


if __name__ == "__main__":
    sys.exit(main())
