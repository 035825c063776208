"""``strawberry setup`` and ``models``: the language models."""

import argparse

from agent_core.models.providers import PROVIDERS
from deploy.cli.parser.shared import Commands, Parents, add_actions

_EPILOG = """\
Without options it asks for everything. A key is never an argument: type it unseen, name its environment
variable with --key-env, or give it on standard input with --key-stdin.
"""


def add(commands: Commands, parents: Parents) -> None:
    """Add these commands."""
    _add_setup(commands, parents)
    actions = add_actions(commands, "models", help_="list models, and get new ones for Ollama")
    each = actions.add_parser(
        "list", parents=[parents.common], help="list the models, whether they answer, and those in Ollama"
    )
    each.add_argument("--no-ask", action="store_true", help="do not try whether each answers")
    each.set_defaults(run="deploy.cli.models:list_models")
    pull = actions.add_parser(
        "pull",
        parents=[parents.common],
        help="download a model into Ollama",
        description="Downloads a model into Ollama. After Ctrl-C the same command continues.",
    )
    pull.add_argument("name", metavar="NAME", help="name in Ollama's library, for example qwen3:4b")
    pull.add_argument(
        "--ollama", metavar="ADDRESS", help="address of Ollama; default: from strawberry.toml, or OLLAMA_HOST"
    )
    pull.set_defaults(run="deploy.cli.models:pull")


def _add_setup(commands: Commands, parents: Parents) -> None:
    setup = commands.add_parser(
        "setup",
        parents=[parents.common],
        help="choose a model, try it, and write strawberry.toml and .env",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    setup.add_argument(
        "--provider", choices=tuple(PROVIDERS), help="add a model of this provider without asking"
    )
    setup.add_argument("--model", help="model name at the provider")
    setup.add_argument("--name", help="your name for it; default: made from the model name")
    setup.add_argument(
        "--base-url", metavar="URL", help="address of an OpenAI-compatible server, or of Ollama"
    )
    setup.add_argument("--key-env", metavar="VARIABLE", help="environment variable that holds the key")
    setup.add_argument("--key-stdin", action="store_true", help="read the key from standard input")
    setup.add_argument(
        "--tools",
        choices=("code", "native"),
        help="how it calls skills; default: native for small models of Ollama, else code",
    )
    setup.add_argument("--no-test", action="store_true", help="write it without trying it first")
    setup.set_defaults(run="deploy.cli.setup:setup")
    others = setup.add_subparsers(metavar="[COMMAND]", help="connect something else")
    assistant = others.add_parser(
        "home-assistant",
        parents=[parents.common],
        help="connect Home Assistant, for its entities",
        description="Asks for the address of Home Assistant and a long-lived access token, tries them, and "
        "writes them to strawberry.toml and .env.",
    )
    assistant.add_argument("--url", help="address, as http://homeassistant.local:8123")
    assistant.add_argument("--token-stdin", action="store_true", help="read the token from standard input")
    assistant.add_argument("--no-test", action="store_true", help="write it without trying it first")
    assistant.set_defaults(run="deploy.cli.home_assistant:setup")
