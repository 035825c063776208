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
        "up": ("serve:register_up", "run a broker, a hub and a local spoke"),
        "hub": ("serve:register_hub", "run the hub alone"),
        "spoke": ("serve:register_spoke", "join a hub, and offer this machine's skills to it"),
        "service": ("service:register_service", "run hub or spoke as a service that starts with the machine"),
        "broker": ("broker:register_broker", "run, set up and check a broker; logins for MQTT programs"),
        "setup": ("setup.setup:register_setup", "choose a model, try it, and write strawberry.toml and .env"),
        "models": ("setup.models:register_models", "list models, and get new ones for Ollama"),
        "doctor": ("home:register_doctor", "check this installation and say how to fix it"),
        "update": ("home:register_update", "update this program, or say how that is done here"),
    },
    "Talk to it": {
        "chat": ("chat.command:register_chat", "talk to the assistant"),
        "voice": ("voice:register_voice", "listen, speak, mute, and try the microphone"),
        "tray": ("tray:register_tray", "show an icon and a quick chat on the desktop"),
        "history": ("chat.history:register_history", "list, show, rename, export or delete conversations"),
        "turns": ("chat.turns:register_turns", "show what was asked, how it ended, and where the time went"),
        "memory": ("live.memory:register_memory", "what the assistant remembers"),
        "sentences": ("hub.skills:register_sentences", "list what you can say without a model"),
        "agents": ("live.agents:register_agents", "agents beside the assistant"),
        "prompt": ("live.world:register_prompt", "show the assistant's prompt, or edit SOUL.md"),
    },
    "Devices and skills": {
        "devices": ("hub.devices:register_devices", "list, add, change, revoke and remove devices"),
        "skills": ("hub.skills:register_skills", "what the devices can do"),
        "call": ("hub.skills:register_call", "call a method of a skill"),
        "exec": ("hub.skills:register_exec", "run Python in the sandbox, as the assistant does"),
        "nodes": ("live.nodes:register_nodes", "programs that run on the devices"),
        "mcp": ("mcp:register_mcp", "serve the home to an MCP client, or list the MCP servers of mcp.json"),
        "home-assistant": (
            "live.home_assistant:register_home_assistant",
            "expose devices, skills and chat to Home Assistant",
        ),
        "world": ("live.world:register_world", "show what there is in the home, with its state"),
    },
    "Watch and record": {
        "watchers": ("live.watchers:register_watchers", "keep an eye on values, and notify or act"),
        "captures": ("live.captures:register_captures", "record topics into files"),
        "events": (
            "live.events:register_events",
            "show what happened: watchers, captures, devices, notifications",
        ),
        "notify": (
            "live.events:register_notify",
            "try the notifications that go to your phone, messenger or mail",
        ),
        "bus": ("live.bus:register_bus", "read and publish MQTT topics"),
    },
    "People and security": {
        "users": ("hub.users:register_users", "list, add, change and remove people"),
        "tokens": ("hub.tokens:register_tokens", "make, list and revoke tokens for programs"),
        "audit": ("hub.skills:register_audit", "show who called what, and what was refused"),
        "certs": ("home:register_certs", "show, make and renew the certificates for --lan"),
    },
    "Data and this program": {
        "backup": ("data.backup:register_backup", "write all data of this home into one encrypted file"),
        "restore": ("data.backup:register_restore", "restore a backup while no hub runs here"),
        "database": ("data.database:register_database", "copy the hub's database to PostgreSQL, or back"),
        "cluster": (
            "data.database:register_cluster",
            "list the replicas of the hub, which one leads, and NATS's nodes",
        ),
        "render": ("render:register_render", "print manifests for Kubernetes, or a configuration of EMQX"),
        "purge": ("home:register_purge", "remove everything that Strawberry published from the brokers"),
        "completion": (
            "completion:register_completion",
            "print what completes commands with Tab, for bash, zsh or fish",
        ),
    },
}
"""Where each command is declared, and what it does, in groups as `strawberry help` shows them."""

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
            module, _, register = place.partition(":")
            getattr(import_module(f"deploy.cli.{module}"), register)(command)
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
