"""Calls that were approved for a watcher, within the approved arguments; any other is refused.

Text that a watcher's model reads comes from devices and may be a stranger's, so a call that declares
``confirm``, is destructive or reaches outside the home needs a yes. The approval of the watcher is that
yes, for this method on this device with these arguments. So only a person who may confirm calls can approve a
watcher that makes any.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent_core.schemas.arguments import check_arguments, secret_arguments
from agent_core.schemas.nearest import suggestion
from agent_core.search.catalogue import SkillCall, Target
from agent_core.search.targets import AnyDirectory, find_path
from contracts.answers.watchers import Allowed
from contracts.errors import CallError, ErrorCode, InvalidMessage, StrawberryError
from contracts.text import shortened
from contracts.wire import Json

_RANGE: Final = frozenset({"minimum", "maximum", "enum"})


class NotApproved(StrawberryError):
    """A call that the model asked for is not among the approved ones; the message names it."""


class ApprovedCall(Allowed):
    """A call as the owner approved it.

    Attributes:
        device: Id of the device that it was approved for, whatever is called by that name later.
    """

    device: str

    def fill(self, given: Mapping[str, Json]) -> dict[str, Json]:
        """Return the arguments of a call: the approved values, and those that the model chose.

        Raises:
            NotApproved: If one is outside what was approved.
        """
        for name, value in given.items():
            if name not in self.arguments:
                raise NotApproved(
                    "{call} was asked for with {name!r}, which is not approved", call=self.path, name=name
                )
            rule = self.arguments[name]
            if not (_within(value, rule) if is_range(rule) else _same(value, rule)):
                raise NotApproved(
                    "{call} was asked for with {name} = {value}, {why}",
                    call=self.path,
                    name=name,
                    value=_short(value),
                    why=f"{'outside' if is_range(rule) else 'not'} {_short(rule)}",
                )
        fixed = {name: rule for name, rule in self.arguments.items() if not is_range(rule)}
        # The approved value itself: [true] equals [1] in Python.
        return {**given, **fixed}

    def found(self, arguments: Mapping[str, Json], devices: AnyDirectory) -> SkillCall:
        """Return the call with confirmed arguments, to be made on behalf of a watcher.

        Args:
            arguments: As `fill` gives them.
            devices: Those of the owner.

        Raises:
            CallError: If the path means nothing, or another device than it was approved for.
        """
        target = find_path(devices, self.path, current=None)
        if target.device != self.device:
            raise CallError(
                ErrorCode.REFUSED,
                "{call} was approved for another device that had this name",
                call=self.path,
                hint="Approve it again for this one.",
                device=target.device,
            )
        checked = check_arguments(target.method, (), arguments)
        return SkillCall(target, checked, confirmed=True, untrusted=True)


def is_range(rule: Json) -> bool:
    """Return whether an approved argument is a range, of which the model chooses one value."""
    return isinstance(rule, dict) and bool(rule) and rule.keys() <= _RANGE


def approve(directory: AnyDirectory, wanted: Sequence[Allowed]) -> list[ApprovedCall]:
    """Check the calls that a watcher asks for and bind each to its device.

    Raises:
        CallError: If a path means nothing, with the nearest names.
        InvalidMessage: If an argument does not exist or its value does not fit.
    """
    return [_approved(find_path(directory, allowed.path, current=None), allowed) for allowed in wanted]


def _approved(target: Target, allowed: Allowed) -> ApprovedCall:
    check_no_secret(target, allowed.arguments)
    properties = target.method.parameters.get("properties", {})
    for name, rule in allowed.arguments.items():
        if name not in properties:
            raise InvalidMessage(
                "{method} has no parameter {name!r}",
                method=target.path,
                name=name,
                hint=suggestion(name, properties) or f"It is {target.method.signature}.",
            )
        if is_range(rule) and not _valid_range(rule):
            raise InvalidMessage(
                "the range of {name!r} of {method} is not valid",
                name=name,
                method=target.path,
                hint='Write {"minimum": 0, "maximum": 50} or {"enum": ["low", "high"]}.',
            )
    missing = set(target.method.parameters.get("required", ())) - allowed.arguments.keys()
    if missing:
        raise InvalidMessage(
            "{method} needs {missing}",
            method=target.path,
            missing=", ".join(map(repr, sorted(missing))),
            hint="Approve a value or a range for each argument that the method needs.",
        )
    samples = {name: _sample(rule) for name, rule in allowed.arguments.items()}
    check_arguments(target.method, (), samples)
    return ApprovedCall(path=target.path, arguments=allowed.arguments, device=target.device)


def check_no_secret(target: Target, arguments: Mapping[str, Json]) -> None:
    """Refuse a secret: what a watcher or a timer calls is kept as it is, and shown.

    Raises:
        InvalidMessage: If one of the arguments is one.
    """
    for name in sorted(secret_arguments(target.method) & arguments.keys()):
        raise InvalidMessage(
            "{name!r} of {method} is a secret, which watchers and timers do not keep",
            name=name,
            method=target.path,
            hint="Its author makes a setting of it. 'strawberry skills settings' sets that.",
        )


def choose(calls: Sequence[ApprovedCall], path: Any, given: Any) -> tuple[ApprovedCall, dict[str, Json]]:
    """Return the approved call that a model asks for, with its arguments.

    Raises:
        NotApproved: If there is none; nothing is called then.
    """
    given = {} if given is None else given
    of_path = [call for call in calls if call.path == path]
    if not of_path or not isinstance(given, dict):
        raise NotApproved("{call} was asked for, which is not approved", call=_short(path))
    for call in of_path[:-1]:
        try:
            return call, call.fill(given)
        except NotApproved:
            continue
    return of_path[-1], of_path[-1].fill(given)


def _within(value: Json, rule: dict[str, Json]) -> bool:
    if "enum" in rule:
        return any(_same(value, each) for each in rule["enum"])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # Comparisons with NaN are all false, so that it is within no range.
    return (value >= rule["minimum"] if "minimum" in rule else value == value) and (
        value <= rule["maximum"] if "maximum" in rule else True
    )


def _same(value: Json, other: Json) -> bool:
    # True equals 1 in Python, and not in JSON.
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _valid_range(rule: dict[str, Json]) -> bool:
    if "enum" in rule:
        return len(rule) == 1 and isinstance(rule["enum"], list) and bool(rule["enum"])
    numbers = [rule[name] for name in ("minimum", "maximum") if name in rule]
    if any(isinstance(each, bool) or not isinstance(each, (int, float)) for each in numbers):
        return False
    return numbers == sorted(numbers)


def _sample(rule: Json) -> Json:
    """Return a value that an approved argument may have."""
    if not is_range(rule):
        return rule
    return rule["enum"][0] if "enum" in rule else rule.get("minimum", rule.get("maximum"))


def _short(value: Any) -> str:
    return shortened(repr(value), 80)
