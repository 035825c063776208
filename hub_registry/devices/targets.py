"""Methods of the home as targets of calls: on one device or on any, by path or by name."""

from collections import defaultdict
from collections.abc import Iterable

from agent_core.search.catalogue import Target, describe_target, method_info, raised_flags
from agent_core.search.nearest import suggestion
from contracts.errors import CallError, ErrorCode
from contracts.registration import Method, MethodFlags
from contracts.wire import Json
from hub_registry.devices.directory import HUB_KEY, Directory, Entry, Found

ANY_DEVICE = "Any device"
"""What people call the virtual device."""


def on_device(found: Found) -> Target:
    """Make the target of a method on its device."""
    entry, skill, method = found.entry, found.skill.name, found.method
    path = f"devices.{entry.key}.{skill}.{method.name}"
    return Target(path, entry.id, entry.device.display_name, skill, method)


def on_any(directory: Directory, skill: str, method: str) -> Target:
    """Make the target of a device-agnostic method, with the strictest flags that any device declares.

    Raises:
        CallError: ``unknown_skill`` where no device has it.
    """
    first, *others = directory.agnostic(skill, method)
    same = [each.method.flags for each in others if each.method.parameters == first.method.parameters]
    flags = strictest([first.method.flags, *same])
    return of_any(skill, first.method.model_copy(update={"flags": flags}))


def of_any(skill: str, method: Method) -> Target:
    """Make the target that leaves it to the hub which device runs this method."""
    return Target(f"devices.{HUB_KEY}.{skill}.{method.name}", HUB_KEY, ANY_DEVICE, skill, method)


def strictest(flags: Iterable[MethodFlags]) -> MethodFlags:
    """Join what several devices declare of the same method, so that each one's word is kept."""
    declared = list(flags)
    return MethodFlags(
        read_only=all(each.read_only for each in declared),
        idempotent=all(each.idempotent for each in declared),
        destructive=any(each.destructive for each in declared),
        open_world=any(each.open_world for each in declared),
        confirm=any(each.confirm for each in declared),
        untrusted_output=any(each.untrusted_output for each in declared),
    )


def find_named(directory: Directory, name: str, *, current: str | None = None) -> Target:
    """Find a method by its path, by ``Skill.method``, or by its name alone.

    Args:
        name: The path with or without ``devices`` in front; parentheses at its end do not count.
        current: Id of the current device, which comes first where several have it.

    Raises:
        CallError: ``unknown_skill`` with the nearest names.
    """
    match name.strip().partition("(")[0].split("."):
        case ["device", skill, method] if skill and method and current is not None:
            return on_device(directory.find(current, skill, method))
        case ["devices" | "device_manager", device, skill, method] | [device, skill, method] if (
            device and skill and method
        ):
            if device == HUB_KEY:
                return on_any(directory, skill, method)
            return on_device(directory.find(device, skill, method))
        case [skill, method] if skill and method:
            return _anywhere(directory, f"{skill}.{method}", current)
        case [method] if method:
            return _anywhere(directory, method, current)
    raise CallError(
        ErrorCode.UNKNOWN_SKILL,
        f"{name[:200]!r} is not the path of a function",
        hint="a path is devices.<device>.<Skill>.<function>; search_skills lists them",
    )


def describe(directory: Directory, name: str, *, current: str | None = None) -> str:
    """Give signature, documentation, path, devices and flags of a method; see ``find_named``.

    Raises:
        CallError: ``unknown_skill`` with the nearest names.
    """
    target = find_named(directory, name, current=current)
    return describe_target(target, _devices_with(directory, target))


def skill_info(directory: Directory, name: str, *, current: str | None = None) -> dict[str, Json]:
    """Give what a skill is and has, by the name of its class; or the same of one method.

    Raises:
        CallError: ``unknown_skill`` with the nearest names.
    """
    having = [entry for entry in _in_order(directory, current) if name in entry.skills]
    if not having:
        target = find_named(directory, name, current=current)
        return method_info(target, _devices_with(directory, target))
    skill = having[0].skills[name]
    key = HUB_KEY if skill.device_agnostic else having[0].key
    return {
        "name": name,
        "docstring": skill.registration.doc,
        "devices": [HUB_KEY] if skill.device_agnostic else [entry.key for entry in having],
        "functions": [
            {
                "name": method.name,
                "path": f"devices.{key}.{name}.{method.name}",
                "signature": method.signature,
                "summary": method.summary,
                "flags": raised_flags(method.flags),
            }
            for method in skill.methods.values()
        ],
    }


def _anywhere(directory: Directory, name: str, current: str | None) -> Target:
    """Find a method by ``Skill.method`` or ``method``: the current device's, else the first one's."""
    known: defaultdict[str, list[Found]] = defaultdict(list)
    for entry in _in_order(directory, current):
        for skill in entry.skills.values():
            for method in skill.methods.values():
                for called in (f"{skill.name}.{method.name}", method.name):
                    known[called].append(Found(entry, skill, method))
    if name not in known:
        raise CallError(
            ErrorCode.UNKNOWN_SKILL, f"no device has {name[:200]}", hint=suggestion(name[:200], known)
        )
    found = known[name][0]
    if found.skill.device_agnostic:
        return on_any(directory, found.skill.name, found.method.name)
    return on_device(found)


def _devices_with(directory: Directory, target: Target) -> tuple[str, ...]:
    """Keys of the devices with this very skill: the same class, method and parameters."""
    return tuple(
        entry.key
        for entry in directory.entries()
        if (skill := entry.skills.get(target.skill))
        and (method := skill.methods.get(target.method.name))
        and method.parameters == target.method.parameters
    )


def _in_order(directory: Directory, current: str | None) -> list[Entry]:
    """All devices, the current one first, then those that are there."""
    return sorted(directory.entries(), key=lambda entry: (entry.id != current, not entry.connected))
