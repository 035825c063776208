"""``strawberry devices``: list, add, review, change, revoke and remove devices."""

import argparse
import difflib
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from contracts.answers.devices import (
    ApprovedAnswer,
    DeviceAnswer,
    InvitationAnswer,
    Item,
    RemovedAnswer,
    ReviewAnswer,
    Waiting,
)
from contracts.errors import ConfigError, Forbidden, NotFound
from deploy.cli.client import HubClient, api, hub_of, is_local_spoke
from deploy.cli.hub.tokens import scopes_of
from deploy.cli.terminal.asking import answer_to, is_sure
from deploy.cli.terminal.output import Output, cell, columns, moment, note, waiting
from deploy.cli.terminal.parser import Actions, Parser

_ON: Final = {"on": True, "off": False}
_JOINING: Final = "/api/devices/join"
_DEVICE: Final = ("device", "its name, key or id")


def list_devices(options: argparse.Namespace) -> None:
    """List all devices, their state and problems."""
    client, output = hub_of(options), Output(options.json)
    devices = client.get("/api/devices", list[DeviceAnswer])
    waiting_ones: list[Waiting] = []
    with suppress(Forbidden):
        waiting_ones = client.get(_JOINING, list[Waiting])
    if options.json:
        asking = [{"id": None, "state": "waiting", **each.model_dump(mode="json")} for each in waiting_ones]
        output.result([*devices, *asking])
        return
    empty = "There are no devices. Run 'strawberry devices add NAME' to add one."
    rows: list[DeviceAnswer | Waiting] = [*devices, *waiting_ones]
    output.rows(rows, _cells, empty=empty)


def _cells(device: DeviceAnswer | Waiting) -> dict[str, object]:
    if isinstance(device, Waiting):
        asks = f"wants to join: strawberry devices approve {device.code}"
        unknown = dict.fromkeys(("key", "owner", "area"))
        return {"name": device.name, **unknown, "state": "waiting", "last_seen": None, "problems": asks}
    problems = [str(problem.message) for problem in device.problems]
    problems += [f"{each.skill}: {each.reason}" for each in device.failing]
    if device.awaited and device.state == "online":
        problems.append(f"not registered: {', '.join(device.awaited)}")
    if device.to_review:
        problems.append(f"{device.to_review} to review: strawberry devices review {device.key}")
    return {
        "name": device.name,
        "key": device.key,
        "owner": f"{device.owner}, shared" if device.shared else device.owner,
        "area": ", ".join(filter(None, (device.area, device.floor))),
        "state": device.state,
        "last_seen": moment(device.last_seen),
        # The latest ones tell the most; --json has them all.
        "problems": "; ".join(dict.fromkeys(reversed(problems[-3:]))),
    }


def add(options: argparse.Namespace) -> None:
    """Add a device: make its enrolment token.

    Makes an enrolment token, and prints the command to run on the device.
    """
    body = {"name": options.name, "trusted": options.trust_skills, "shared": options.shared}
    answer = hub_of(options).post("/api/devices", body | _lifetime(options), InvitationAnswer)
    Output(options.json).result(answer, text=_invitation(options.name, answer))


def invite(options: argparse.Namespace) -> None:
    """Make a new enrolment token for a device of the list.

    Makes a new enrolment token, also for a revoked device. Once the device has used it, its old tokens
    are revoked.
    """
    path = api("devices", options.device, "invitations")
    answer = hub_of(options).post(path, _lifetime(options), InvitationAnswer)
    Output(options.json).result(answer, text=_invitation(options.device, answer))


def _lifetime(options: argparse.Namespace) -> dict[str, int]:
    return {} if options.minutes is None else {"lifetime_s": options.minutes * 60}


def _invitation(name: str, answer: InvitationAnswer) -> str:
    expiry = moment(answer.expires_at)
    lines = [
        f"Enrolment token for {name}. It works once and expires {expiry}:",
        "",
        f"  {answer.token}",
        "",
        "On that device:",
        "",
        "  read -rs HUB_DEVICE_TOKEN && export HUB_DEVICE_TOKEN   # paste the token, press Enter",
        f"  {answer.command}",
    ]
    if not answer.reachable:
        lines += [
            "",
            "This address works on this machine only. For other machines, start the hub with --lan.",
        ]
    return "\n".join(lines)


def rename(options: argparse.Namespace) -> None:
    """Change the display name of a device."""
    if not options.name.strip():
        raise ConfigError("a device needs a name", hint="For example 'Bedroom PC'.")
    path = api("devices", options.device)
    answer = hub_of(options).send("PATCH", path, {"name": options.name}, DeviceAnswer)
    Output(options.json).result(
        answer, text=f"{options.device} is now {answer.name} (in code: devices.{answer.key})."
    )


def change(options: argparse.Namespace) -> None:
    """Set area, floor, aliases and owner of a device, and what you leave to it.

    Sets what is given; the rest stays. An empty text ('') clears it.
    """
    given = {
        "area": options.area,
        "floor": options.floor,
        "aliases": options.alias or None,
        "confirm": _ON.get(options.confirm),
        "trusted": _ON.get(options.trust_skills),
        "owner": options.owner,
        "shared": options.shared,
        "scopes": scopes_of(options.scope) if options.scope else None,
    }
    body = {name: value for name, value in given.items() if value is not None}
    if not body:
        raise ConfigError(
            "nothing to set",
            hint="Give --area, --floor, --alias, --confirm, --trust-skills, --scope, --owner, --shared "
            "or --not-shared.",
        )
    answer = hub_of(options).send("PATCH", api("devices", options.device), body, DeviceAnswer)
    aliases = ", ".join(answer.aliases) or "none"
    Output(options.json).result(
        answer,
        text=f"{answer.name}: area {answer.area or 'none'}, floor {answer.floor or 'none'}, "
        f"aliases {aliases}, confirms calls: {'yes' if answer.confirm else 'no'}, "
        f"skills trusted: {'yes' if answer.trusted else 'no'}, "
        f"scope {','.join(answer.scopes) or 'none'}, owner {answer.owner}, "
        f"{'shared' if answer.shared else 'not shared'}.",
    )


def revoke(options: argparse.Namespace) -> int:
    """Revoke a device's tokens at once; it stays in the list."""
    client = hub_of(options)
    name = client.get(api("devices", options.device), DeviceAnswer).name
    if not is_sure(f"Revoke the access of {name}? It is disconnected at once.", yes=options.yes):
        return 1
    answer = client.post(api("devices", options.device, "revoke"), {}, DeviceAnswer)
    # The spoke of 'up' takes no invitation: it asks for its own once it is not in the list.
    action = "remove" if is_local_spoke(options, answer.id) else "invite"
    again = f"'strawberry devices {action} {answer.key}' lets it join again"
    Output(options.json).result(answer, text=f"{answer.name} is revoked. {again}.")
    return 0


def remove(options: argparse.Namespace) -> int:
    """Revoke a device, delete it and clear its topics."""
    client = hub_of(options)
    name = client.get(api("devices", options.device), DeviceAnswer).name
    if not is_sure(f"Remove {name} with all that was set and approved for it?", yes=options.yes):
        return 1
    with waiting("removing"):
        answer = client.delete(api("devices", options.device), RemovedAnswer)
    Output(options.json).result(answer, text=f"{answer.name} is removed.")
    return 0


def approve(options: argparse.Namespace) -> int:
    """Approve a device that shows a code.

    Shows the device that waits with this code. Its screen must show the same fingerprint. Answering no
    makes the code void.
    """
    client, output = hub_of(options), Output(options.json)
    waiting_ones = client.get(_JOINING, list[Waiting])
    if options.code is None:
        output.rows(
            waiting_ones,
            columns("code", "name", "source", "fingerprint", "expires_at"),
            empty="No device is waiting. 'strawberry spoke join' on the new device shows a code.",
        )
        return 0
    code = _normalized(options.code)
    found = next((each for each in waiting_ones if _normalized(each.code) == code), None)
    if found is None:
        raise NotFound(
            f"no device is waiting with the code {options.code}",
            hint="A code is valid once, for ten minutes; 'strawberry spoke join' shows a new one.",
        )
    if not options.yes:
        note(
            f"{found.name} at {found.source} wants to join.\n"
            f"  fingerprint  {found.fingerprint}\n"
            "The screen of the device must show the same fingerprint."
        )
        answer = answer_to(
            "Is it the same, and may the device join?",
            otherwise="Compare the fingerprint, then add --yes. The code stays valid.",
        )
        if answer is None:
            note("Nothing was changed; the code stays valid.")
            return 1
        if not answer:
            client.request("DELETE", api("devices", "join", found.code))
            note("The device was refused, and its code is void.")
            return 1
    body = {"fingerprint": found.fingerprint, "name": options.name}
    approved = client.post(api("devices", "join", found.code, "approve"), body, ApprovedAnswer)
    wanted = {"trusted": options.trust_skills, "shared": options.shared}
    if any(wanted.values()):
        client.request("PATCH", api("devices", approved.id), wanted)
    text = f"{approved.name} is approved. It joins by itself within seconds."
    if not options.trust_skills:
        text += f"\n'strawberry devices review {approved.key}' then shows what its skills ask for."
    output.result(approved, text=text)
    return 0


def _normalized(code: str) -> str:
    return "".join(letter for letter in code.upper() if letter.isalnum())


def _add_trusted(parser: Parser) -> None:
    parser.add_flag("--trust-skills", "approve what its skills declare, now and later: see 'devices review'")
    parser.add_flag("--shared", "everybody at home sees and calls it, not only its owner")


def review(options: argparse.Namespace) -> None:
    """Approve what skills of devices declare.

    Shows what waits for your approval: looser flags, sentences with free text, serving the whole home,
    documentation for the assistant. In a terminal it asks for each device.
    """
    client, output = hub_of(options), Output(options.json)
    if options.device is None:
        found = client.get("/api/devices/review", list[ReviewAnswer])
    else:
        found = [client.get(api("devices", options.device, "review"), ReviewAnswer)]
    is_asking = sys.stdin.isatty() and not options.json
    results = []
    for each in filter(lambda each: each.items, found):
        if not options.json:
            output.result(None, text=_shown(each))
        approve = options.decision
        if approve is None and is_asking:
            approve = answer_to("Approve all of it? 'n' denies it for good, Enter leaves it for later.")
        results.append(each if approve is None else _decide(client, each, approve=approve))
    if options.json or not results:
        output.result(results, text="Nothing waits for approval.")


def _decide(client: HubClient, each: ReviewAnswer, *, approve: bool) -> ReviewAnswer:
    # The digest makes sure that nothing is decided that was not shown.
    body = {"digest": each.digest, "approve": approve}
    decided = client.post(api("devices", each.id, "review"), body, ReviewAnswer)
    note(f"{each.name}: {len(each.items)} {'approved' if approve else 'denied'}.")
    return decided


def _shown(device: ReviewAnswer) -> str:
    return "\n".join([f"{device.name} ({device.key})", *_lines(device.items), ""])


def _lines(items: list[Item]) -> Iterator[str]:
    for item in items:
        name = ".".join(filter(None, (item.skill, item.method)))
        denied = " (denied)" if item.denied else ""
        match item.kind:
            case "flags":
                yield f"  {name}: flags {item.before} → {item.after}{denied}"
            case "sentence":
                yield f"  {name}: hears on every device, with free text{denied}"
                yield f"    + {cell(item.after)}"
            case "uses":
                yield f"  {name}: calls {item.after}{denied}"
            case "provider":
                yield f"  {name}: {item.after} beside other devices{denied}"
            case _:
                yield f"  {name}: documentation that the assistant reads{denied}"
                yield from _changes(item.before, item.after)


def _changes(before: str, after: str) -> Iterator[str]:
    # All of it, however long: what is not shown could be approved unseen.
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    for line in islice(lines, 2, None):
        if not line.startswith("@"):
            yield f"    {line[0]} {line[1:]}"


def add_devices_actions(actions: Actions) -> None:
    """Declare 'strawberry devices'."""
    actions.add_parser("list", run=list_devices, hub=True)
    command = actions.add_parser("add", run=add, hub=True)
    command.takes("name", "display name, for example 'Bedroom PC'")
    _add_trusted(command)
    command.add_number("--minutes", "how long the token is valid; default 10")
    actions.add_parser("invite", run=invite, hub=True, on=_DEVICE).add_number(
        "--minutes", "how long the token is valid; default 10"
    )
    command = actions.add_parser("approve", run=approve, hub=True)
    command.takes("code", "as its screen shows it; default: list the devices that wait", nargs="?")
    command.takes("--name", "display name; default: the one that the device gave itself")
    _add_trusted(command)
    command.add_flag("--yes", "do not ask")
    actions.add_parser("rename", run=rename, hub=True, on=_DEVICE).takes("name", "the new display name")
    command = actions.add_parser("set", run=change, hub=True, on=_DEVICE)
    command.takes("--area", "for example 'Living room'")
    command.takes("--floor", "for example 'Ground floor'")
    command.add_list(
        "--alias", "another name for it; may be repeated, and replaces the earlier ones", metavar="NAME"
    )
    command.takes(
        "--confirm",
        "whether a person at this device may confirm the calls that its messages lead to; off for a new "
        "device",
        choices=("on", "off"),
    )
    command.takes(
        "--trust-skills",
        "approve what its skills declare, now and later: see 'devices review'",
        choices=("on", "off"),
    )
    command.add_list(
        "--scope",
        "what it may do on its own: chat as its owner, or call skills of other devices; may be "
        "repeated; '' for neither; default for a new device chat",
    )
    command.takes("--owner", "the person who owns it from now on, by name or id", metavar="USER")
    choice = command.add_mutually_exclusive_group()
    choice.add_flag("--shared", "everybody at home sees and calls it, not only its owner", const=True)
    choice.add_flag("--not-shared", "only its owner sees and calls it", dest="shared", const=False)
    command = actions.add_parser("review", run=review, hub=True)
    command.takes("device", "its name, key or id; default: all devices", nargs="?")
    choice = command.add_mutually_exclusive_group()
    choice.add_flag("--approve", "approve all of it", dest="decision", const=True)
    choice.add_flag("--deny", "deny all of it for good", dest="decision", const=False)
    actions.add_parser("revoke", run=revoke, hub=True, on=_DEVICE).add_flag("--yes", "do not ask")
    actions.add_parser("remove", run=remove, hub=True, on=_DEVICE).add_flag("--yes", "do not ask")
