"""Man pages of all commands, made of their parsers: ``python .ci/man.py DIRECTORY``."""

import argparse
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from deploy.cli.commands import make_parser


def pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    main = make_parser()
    commands = main.commands()
    assert commands is not None
    about = {each.dest: each.help or "" for each in commands._choices_actions}
    found = {"strawberry.1": _page("strawberry", main, "one assistant for a whole home", deep=False)}
    for name, parser in commands.choices.items():
        found[f"strawberry-{name}.1"] = _page(f"strawberry-{name}", parser, about[name], deep=True)
    return found


def _page(name: str, parser: argparse.ArgumentParser, about: str, *, deep: bool) -> str:
    lines = [f'.TH "{name.upper()}" "1" "" "Strawberry {version("strawberry-home")}"', ".SH NAME"]
    lines += [f"{_text(name)} \\- {_text(about)}", *_body(parser, deep=deep), ".SH SEE ALSO"]
    others = ("strawberry",) if deep else ("strawberry-up", "strawberry-chat", "strawberry-doctor")
    lines.append(", ".join(f"{_text(each)}(1)" for each in others))
    return "\n".join(lines) + "\n"


def _body(parser: argparse.ArgumentParser, *, deep: bool) -> Iterator[str]:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield from (".SH SYNOPSIS" if parser.prog.count(" ") < 2 else ".P", _text(usage))
    if parser.description:
        yield from (".SH DESCRIPTION" if parser.prog.count(" ") < 2 else ".P", _text(parser.description))
    for group in parser._action_groups:
        actions = [each for each in group._group_actions if each.help != argparse.SUPPRESS]
        below = [each for each in actions if isinstance(each, argparse._SubParsersAction)]
        if not actions:
            continue
        yield f'.{"SH" if parser.prog.count(" ") < 2 else "SS"} "{_text((group.title or "").upper())}"'
        for action in actions:
            if action not in below:
                yield from (".TP", f"\\fB{_text(_names(action))}\\fR", _text(action.help or ""))
        for commands in below:
            for each in commands._choices_actions:
                yield from (".TP", f"\\fB{_text(each.dest)}\\fR", _text(each.help or ""))
            for name, inner in commands.choices.items() if deep else ():
                yield f'.SH "{_text(name)}"'
                yield from _body(inner, deep=True)


def _names(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    return " ".join(filter(None, [", ".join(action.option_strings), value]))


def _text(text: str) -> str:
    """Return a text as roff shows it, in one line that no request of roff begins."""
    plain = " ".join(text.replace("%(default)s", "").split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


if __name__ == "__main__":
    for file, page in pages().items():
        (Path(sys.argv[1]) / file).write_text(page, encoding="utf-8")
