"""The names of all commands, and the parser of those that are meant.

What declares a command stands beside its function, and is imported only where it is meant.
"""

import argparse
from collections.abc import Collection
from importlib import import_module
from typing import Final, NoReturn

from contracts import own_version
from deploy.cli.terminal.parser import Parser

GROUPS: Final = {
    "Run a home": {
        "up": ("serve", "run a broker, a hub and a local spoke"),
        "hub": ("serve", "run the hub alone"),
        "spoke": ("serve", "join a hub, and offer this machine's skills to it"),
        "service": ("service", "run hub or spoke as a service that starts with the machine"),
        "broker": ("broker", "run, set up and check a broker; logins for MQTT programs"),
        "setup": ("setup.setup", "choose a model, try it, and write strawberry.toml and .env"),
        "models": ("setup.models", "list models, and get new ones for Ollama"),
        "doctor": ("home", "check this installation and say how to fix it"),
        "update": ("home", "update this program, or say how that is done here"),
    },
    "Talk to it": {
        "chat": ("chat.command", "talk to the assistant"),
        "voice": ("voice", "listen, speak, mute, and try the microphone"),
        "tray": ("tray", "show an icon and a quick chat on the desktop"),
        "history": ("chat.history", "list, show, rename, export or delete conversations"),
        "turns": ("chat.turns", "show what was asked, how it ended, and where the time went"),
        "memory": ("live.world", "what the assistant remembers"),
        "sentences": ("hub.skills", "list what you can say without a model"),
        "agents": ("live.agents", "agents beside the assistant"),
        "prompt": ("live.world", "show the assistant's prompt, or edit SOUL.md"),
    },
    "Devices and skills": {
        "devices": ("hub.devices", "list, add, change, revoke and remove devices"),
        "skills": ("hub.skills", "what the devices can do"),
        "call": ("hub.skills", "call a method of a skill"),
        "exec": ("hub.skills", "run Python in the sandbox, as the assistant does"),
        "nodes": ("live.nodes", "programs that run on the devices"),
        "mcp": ("mcp", "serve the home to an MCP client, or list the MCP servers of mcp.json"),
        "home-assistant": ("live.home_assistant", "expose devices, skills and chat to Home Assistant"),
        "world": ("live.world", "show what there is in the home, with its state"),
    },
    "Watch and record": {
        "watchers": ("live.watchers", "keep an eye on values, and notify or act"),
        "captures": ("live.captures", "record topics into files"),
        "events": ("live.events", "show what happened: watchers, captures, devices, notifications"),
        "notify": ("live.events", "try the notifications that go to your phone, messenger or mail"),
        "bus": ("live.bus", "read and publish MQTT topics"),
    },
    "People and security": {
        "users": ("hub.users", "list, add, change and remove people"),
        "tokens": ("hub.tokens", "make, list and revoke tokens for programs"),
        "audit": ("hub.skills", "show who called what, and what was refused"),
        "certs": ("home", "show, make and renew the certificates for --lan"),
    },
    "Data and this program": {
        "backup": ("data.backup", "write all data of this home into one encrypted file"),
        "restore": ("data.backup", "restore a backup while no hub runs here"),
        "database": ("data.database", "copy the hub's database to PostgreSQL, or back"),
        "cluster": ("data.database", "list the replicas of the hub, which one leads, and NATS's nodes"),
        "render": ("render", "print manifests for Kubernetes, or a configuration of EMQX"),
        "purge": ("home", "remove everything that Strawberry published from the brokers"),
        "completion": ("completion", "print what completes commands with Tab, for bash, zsh or fish"),
    },
}
"""The module that declares each command, and what it does, in groups as `strawberry help` shows them."""

COMMANDS: Final = {name: each for group in GROUPS.values() for name, each in group.items()}

_EPILOG: Final = """\
Files are kept in ~/.strawberry, or where STRAWBERRY_HOME points.
'strawberry help COMMAND' explains a command.
"""


def make_parser(words: Collection[str] = tuple(COMMANDS)) -> Parser:
    """Make the parser; of commands that are not among the words it has only the name and what they do."""
    parser = _MainParser(
        prog="strawberry", description="One assistant for a whole home, over MQTT.", epilog=_EPILOG
    )
    parser.add_common_options()
    parser.add_argument("-V", "--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for name, (place, about) in COMMANDS.items():
        command = commands.add_parser(name, help=about)
        if name in words:
            module, plain = import_module(f"deploy.cli.{place}"), name.replace("-", "_")
            if (add_actions := getattr(module, f"add_{plain}_actions", None)) is not None:
                add_actions(command.add_subparsers(title="actions", metavar="ACTION", required=True))
            else:
                getattr(module, f"register_{plain}")(command)
    return parser


class _MainParser(Parser):
    def format_help(self) -> str:
        """Return the help with the commands in their groups."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        commands = self.commands()
        lines = {each.dest: each for each in commands._choices_actions} if commands is not None else {}
        for title, group in GROUPS.items():
            formatter.start_section(title)
            formatter.add_arguments(lines[name] for name in group)
            formatter.end_section()
        for options in self._action_groups:
            formatter.start_section(options.title)
            formatter.add_arguments(each for each in options._group_actions if each is not commands)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


class _Version(argparse.Action):
    """Prints the version."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"strawberry {own_version()}")
        parser.exit()
