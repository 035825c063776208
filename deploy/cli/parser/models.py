"""``strawberry setup`` and ``models``: what answers when no sentence matches."""

import argparse

from agent_core.models.providers import PROVIDERS
from deploy.cli.parser.shared import Commands, Parents, add_actions

_EPILOG = """\
Without arguments it asks, at a terminal. Keys are never arguments: they are typed unseen, or taken from the
variable that --key-env names, or read from standard input with --key-stdin.
"""


def add(commands: Commands, parents: Parents) -> None:
    """Add these commands."""
    _add_setup(commands, parents)
    actions = add_actions(commands, "models", help_="the models that are asked, and those that Ollama has")
    each = actions.add_parser(
        "list", parents=[parents.common], help="the configured ones, whether they answer, and Ollama's"
    )
    each.add_argument(
        "--no-ask", action="store_true", help="send no question; else each is asked for one word"
    )
    each.set_defaults(run="deploy.cli.models:list_models")
    pull = actions.add_parser(
        "pull",
        parents=[parents.common],
        help="let Ollama get a model",
        description="Ctrl-C stops it; the same command goes on where it was.",
    )
    pull.add_argument("name", metavar="NAME", help="as in Ollama's library, for example qwen3:4b")
    pull.add_argument("--ollama", metavar="ADDRESS", help="default: that of the models, or OLLAMA_HOST")
    pull.set_defaults(run="deploy.cli.models:pull")


def _add_setup(commands: Commands, parents: Parents) -> None:
    setup = commands.add_parser(
        "setup",
        parents=[parents.common],
        help="choose models, try them, and write strawberry.toml and .env",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    setup.add_argument("--provider", choices=tuple(PROVIDERS), help="ask nothing, add this one")
    setup.add_argument("--model", help="as the provider calls it")
    setup.add_argument("--name", help="what you call it; default: made from the model")
    setup.add_argument("--base-url", metavar="URL", help="of a server that speaks OpenAI's API, or of Ollama")
    setup.add_argument("--key-env", metavar="VARIABLE", help="the variable that holds the key")
    setup.add_argument("--key-stdin", action="store_true", help="read the key from standard input")
    setup.add_argument(
        "--tools", choices=("code", "native"), help="default: native for small models of Ollama, else code"
    )
    setup.add_argument("--no-test", action="store_true", help="write it without trying it")
    setup.set_defaults(run="deploy.cli.setup:setup")
