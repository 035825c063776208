"""``strawberry skills``, ``call`` and ``exec``: what the devices can do, and doing it."""

import argparse
import json
import sys
from typing import Any
from urllib.parse import urlencode

from contracts.errors import ConfigError, StrawberryError
from deploy.cli.client import HubClient, NeedsConfirmation
from deploy.cli.output import Output, waiting
from deploy.home.directory import Home
from deploy.logs.terminal import visible

_COLUMNS = ("path", "summary", "devices")


def list_skills(options: argparse.Namespace) -> None:
    """Print every method of every device."""
    _print_skills(options, "/api/skills")


def search(options: argparse.Namespace) -> None:
    """Print the methods that fit some words, best first."""
    _print_skills(options, "/api/skills/search?" + urlencode({"q": " ".join(options.query)}))


def _print_skills(options: argparse.Namespace, path: str) -> None:
    answer = _client(options).request("GET", path)
    rows = answer if isinstance(answer, list) else answer["results"]
    Output(options.json).rows(
        rows, _COLUMNS, empty="No skill fits. 'strawberry skills list' shows all there are."
    )


def describe(options: argparse.Namespace) -> None:
    """Print the signature and the whole documentation of a method."""
    answer = _client(options).request("GET", "/api/skills/describe?" + urlencode({"path": options.path}))
    Output(options.json).result(answer, text=answer["text"])


def call(options: argparse.Namespace) -> None:
    """Call a method of a skill, asking first where the method wants a person's word."""
    skill, dot, method = options.method.rpartition(".")
    if not dot or not skill or not method:
        raise ConfigError(f"{options.method!r} names no method", hint="For example LampSkill.turn_on.")
    args, kwargs = _arguments(options.arguments)
    body: dict[str, Any] = {
        "device": options.device,
        "skill": skill,
        "method": method,
        "args": args,
        "kwargs": kwargs,
    }
    client = _client(options)
    try:
        with waiting(options.method):
            answer = client.request("POST", "/api/skills/call", body)
    except NeedsConfirmation as wanted:
        if options.json or not _approved(options):
            raise
        confirmed = {**body, "confirmation": wanted.confirmation}
        with waiting(options.method):
            answer = client.request("POST", "/api/skills/call", confirmed)
    Output(options.json).result(answer["result"])


def _approved(options: argparse.Namespace) -> bool:
    print(
        f"{options.device}: {options.method}({', '.join(options.arguments)})? [y/N] ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _arguments(words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Take words apart: ``KEY=VALUE`` by name, anything else by position, in order."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier():
            args.append(_value(word))
        elif name in kwargs:
            raise ConfigError(f"{name} is given twice")
        else:
            kwargs[name] = _value(text)
    return args, kwargs


def _value(text: str) -> Any:
    """Read what only JSON can say as JSON; the hub turns plain text into what the method takes."""
    if text[:1] in ("{", "[", '"') or text == "null":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def execute(options: argparse.Namespace) -> int:
    """Run Python in the sandbox and print what it printed and its value."""
    code = sys.stdin.read() if options.code == "-" else options.code
    with waiting("running"):
        answer = _client(options).request("POST", "/api/exec", {"code": code})
    if options.json:
        Output(as_json=True).result(answer)
        return 0 if answer["status"] == "ok" else 1
    if answer["stdout"]:
        print(visible(answer["stdout"]), end="" if answer["stdout"].endswith("\n") else "\n")
    if answer["status"] != "ok":
        raise StrawberryError(str(answer["error"]).rstrip() or f"the run ended: {answer['status']}")
    Output(as_json=False).result(answer["value"])
    return 0


def _client(options: argparse.Namespace) -> HubClient:
    return HubClient.find(Home.find(), url=options.hub)
