"""The names of all commands, and the parser of those that are meant.

What declares a command stands beside its function, and is imported only where it is meant.
"""

import argparse
from collections.abc import Collection
from importlib import import_module
from typing import Final, NoReturn

from deploy.cli.terminal.parser import Parser

COMMANDS: Final = {
    "up": ("serve:register_up", "run a broker, a hub and a local spoke"),
    "hub": ("serve:register_hub", "run the hub alone"),
    "spoke": ("serve:register_spoke", "join a hub, and offer this machine's skills to it"),
    "service": ("service:register_service", "run hub or spoke as a service that starts with the machine"),
    "broker": ("broker:register_broker", "run, set up and check a broker; logins for MQTT programs"),
    "chat": ("chat.command:register_chat", "talk to the assistant"),
    "tray": ("tray:register_tray", "show an icon and a quick chat on the desktop"),
    "history": ("chat.history:register_history", "list, show, rename, export or delete conversations"),
    "turns": ("chat.turns:register_turns", "show what was asked, how it ended, and where the time went"),
    "call": ("hub.skills:register_call", "call a method of a skill"),
    "exec": ("hub.skills:register_exec", "run Python in the sandbox, as the assistant does"),
    "skills": ("hub.skills:register_skills", "what the devices can do"),
    "sentences": ("hub.skills:register_sentences", "list what you can say without a model"),
    "voice": ("voice:register_voice", "listen, speak, mute, and try the microphone"),
    "devices": ("hub.devices:register_devices", "list, add, change, revoke and remove devices"),
    "users": ("hub.users:register_users", "list, add, change and remove people"),
    "tokens": ("hub.tokens:register_tokens", "make, list and revoke tokens for programs"),
    "audit": ("hub.skills:register_audit", "show who called what, and what was refused"),
    "agents": ("live.agents:register_agents", "agents beside the assistant"),
    "bus": ("live.bus:register_bus", "read and publish MQTT topics"),
    "captures": ("live.captures:register_captures", "record topics into files"),
    "events": (
        "live.events:register_events",
        "show what happened: watchers, captures, devices, notifications",
    ),
    "home-assistant": (
        "live.home_assistant:register_home_assistant",
        "expose devices, skills and chat to Home Assistant",
    ),
    "mcp": ("mcp:register_mcp", "serve the home to an MCP client, or list the MCP servers of mcp.json"),
    "memory": ("live.memory:register_memory", "what the assistant remembers"),
    "nodes": ("live.nodes:register_nodes", "programs that run on the devices"),
    "notify": (
        "live.notify:register_notify",
        "try the notifications that go to your phone, messenger or mail",
    ),
    "watchers": ("live.watchers:register_watchers", "keep an eye on values, and notify or act"),
    "world": ("live.world:register_world", "show what there is in the home, with its state"),
    "prompt": ("live.world:register_prompt", "show the assistant's prompt, or edit SOUL.md"),
    "setup": ("setup.setup:register_setup", "choose a model, try it, and write strawberry.toml and .env"),
    "models": ("setup.models:register_models", "list models, and get new ones for Ollama"),
    "backup": ("backup:register_backup", "write all data of this home into one encrypted file"),
    "restore": ("backup:register_restore", "restore a backup while no hub runs here"),
    "certs": ("home:register_certs", "show, make and renew the certificates for --lan"),
    "purge": ("home:register_purge", "remove everything that Strawberry published from the brokers"),
    "doctor": ("home:register_doctor", "check this installation and say how to fix it"),
    "update": ("home:register_update", "update this program, or say how that is done here"),
}
"""Where each is declared, and what it does."""

_EPILOG: Final = """\
Files are kept in ~/.strawberry, or where STRAWBERRY_HOME points.
'strawberry COMMAND --help' explains a command.
"""


def make_parser(words: Collection[str] = tuple(COMMANDS)) -> Parser:
    """Make the parser; of commands that are not among the words it has only the name and what they do."""
    parser = Parser(
        prog="strawberry", description="One assistant for a whole home, over MQTT.", epilog=_EPILOG
    )
    parser.add_common_options()
    parser.add_argument("-V", "--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (place, about) in COMMANDS.items():
        command = commands.add_parser(name, help=about)
        if name in words:
            module, _, register = place.partition(":")
            getattr(import_module(f"deploy.cli.{module}"), register)(command)
    return parser


class _Version(argparse.Action):
    """Prints the version, looked up only when asked for: reading package metadata takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"strawberry {version('strawberry-home')}")
        parser.exit()
