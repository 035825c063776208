"""Methods as targets of calls: found by path or by name, on one device or on any, and described."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from agent_core import limits
from agent_core.schemas.class_text import class_lines
from agent_core.schemas.nearest import suggestion
from agent_core.search.catalogue import Target, describe_target, method_info, raised_flags
from agent_core.search.directory import HUB_KEY, DeviceEntry, Found, RegisteredSkill, SkillDirectory
from contracts.devices.registration import MethodFlags
from contracts.errors import CallError, ErrorCode
from contracts.wire import Json

ANY_DEVICE: Final = "Any device"
"""Name of the virtual device for people."""

AnyDirectory = SkillDirectory[Any]


def on_device(found: Found[Any]) -> Target:
    """Make the target of a method on its device."""
    entry, skill, method = found.entry, found.skill.name, found.method
    path = f"devices.{entry.key}.{skill}.{method.name}"
    is_own, labels = entry.id == HUB_KEY, found.skill.registration.labels
    return Target(path, entry.id, entry.display_name, skill, method, is_hub_own=is_own, labels=labels)


def on_hub(directory: AnyDirectory, skill: str, method: str) -> Target:
    """Make the target of a method on the virtual device: of the hub's own skill, or of any device's.

    Raises:
        CallError: ``unknown_skill`` where neither has it.
    """
    if skill in directory.hub.skills:
        return on_device(directory.find_on(directory.hub, skill, method))
    return on_any(directory, skill, method)


def on_any(directory: AnyDirectory, skill: str, method: str) -> Target:
    """Make the target of a device-agnostic method, with the strictest flags that any device declares.

    Raises:
        CallError: ``unknown_skill`` where no device has it.
    """
    first, *others = directory.agnostic(skill, method)
    same = [each.method.flags for each in others if each.method.parameters == first.method.parameters]
    flags = strictest([first.method.flags, *same])
    return of_any(
        directory, Found(first.entry, first.skill, first.method.model_copy(update={"flags": flags}))
    )


def of_any(directory: AnyDirectory, found: Found[Any]) -> Target:
    """Make the target that leaves open which device runs this method."""
    path = f"devices.{HUB_KEY}.{found.skill.name}.{found.method.name}"
    device, name = (
        (HUB_KEY, ANY_DEVICE) if directory.routes_agnostic else (found.entry.id, found.entry.display_name)
    )
    labels = found.skill.registration.labels
    return Target(path, device, name, found.skill.name, found.method, labels=labels)


def strictest(flags: Iterable[MethodFlags]) -> MethodFlags:
    """Join what several devices declare of the same method, so that each declaration holds."""
    declared = list(flags)
    return MethodFlags(
        read_only=all(each.read_only for each in declared),
        idempotent=all(each.idempotent for each in declared),
        destructive=any(each.destructive for each in declared),
        open_world=any(each.open_world for each in declared),
        confirm=any(each.confirm for each in declared),
        untrusted_output=any(each.untrusted_output for each in declared),
        unknown=any(each.unknown for each in declared),
    )


def find_target(directory: AnyDirectory, device: str, skill: str, method: str) -> Target:
    """Find a method on a device that is called by any of its names, or ``hub`` for any device.

    Raises:
        CallError: ``unknown_skill`` with the nearest names.
    """
    if device == HUB_KEY:
        return on_hub(directory, skill, method)
    return on_device(directory.find(device, skill, method))


def find_path(directory: AnyDirectory, path: str, *, current: str | None) -> Target:
    """Find the method that a path in generated code means; a device goes by its key alone.

    Args:
        current: Id of the current device.

    Raises:
        CallError: ``unknown_skill`` with the nearest names.
    """
    match path.split("."):
        case ["devices" | "device_manager", device, skill, method] if device and skill and method:
            if device == HUB_KEY:
                return on_hub(directory, skill, method)
            entry = directory.by_key(device)
        case ["device", skill, method] if skill and method:
            if current is None:
                raise CallError(
                    ErrorCode.UNKNOWN_SKILL,
                    "this conversation has no current device",
                    hint="Name one: devices.<key>.<Skill>.<method>(…).",
                )
            entry = directory.resolve(current)
        case _:
            raise CallError(
                ErrorCode.UNKNOWN_SKILL,
                f"{path[:200]!r} is not the path of a skill method",
                hint="Write devices.<key>.<Skill>.<method>(…), or device.<Skill>.<method>(…) for the current "
                "device.",
            )
    return on_device(directory.find_on(entry, skill, method))


def find_named(directory: AnyDirectory, name: str, *, current: str | None = None) -> Target:
    """Find a method by its path, by ``Skill.method``, or by its name alone.

    Args:
        name: The path with or without ``devices`` in front; parentheses at its end do not count.
        current: Id of the current device, which comes first where several have it.

    Raises:
        CallError: ``unknown_skill`` with the nearest names.
    """
    match _parts(name):
        case ["device", skill, method] if skill and method and current is not None:
            return on_device(directory.find(current, skill, method))
        case ["devices" | "device_manager", device, skill, method] | [device, skill, method] if (
            device and skill and method
        ):
            return find_target(directory, device, skill, method)
        case [skill, method] if skill and method:
            return _anywhere(directory, f"{skill}.{method}", current)
        case [method] if method:
            return _anywhere(directory, method, current)
    raise CallError(
        ErrorCode.UNKNOWN_SKILL,
        f"{name[:200]!r} is not the path of a function",
        hint="a path is devices.<device>.<Skill>.<function>; search_skills lists them",
    )


def describe(directory: AnyDirectory, name: str, *, current: str | None = None) -> str:
    """Return the documentation of a method, or of a class with its methods, as Python would have it.

    Args:
        name: Of a method as in ``find_named``; of a class alone, or after ``devices.<key>`` or ``device``.
        current: Id of the current device.

    Raises:
        CallError: ``unknown_skill`` with the nearest names.
    """
    having = _with_skill(directory, name, current)
    if having:
        return _class_text(directory, having)
    target = find_named(directory, name, current=current)
    text = describe_target(target, _devices_with(directory, target))
    having = _with_skill(directory, target.path.rpartition(".")[0], current)
    return "\n".join((text, *_problem_lines(having)))


def skill_info(directory: AnyDirectory, name: str, *, current: str | None = None) -> dict[str, Json]:
    """Return what a skill is and has, by the name of its class; or ``method_info`` of one method.

    Raises:
        CallError: ``unknown_skill`` with the nearest names.
    """
    having = _with_skill(directory, name, current)
    if not having:
        target = find_named(directory, name, current=current)
        return method_info(target, _devices_with(directory, target))
    _, skill = having[0]
    return {
        "name": skill.name,
        "docstring": skill.registration.doc,
        "devices": list(_keys(having)),
        "functions": [
            {
                "name": target.method.name,
                "path": target.path,
                "signature": target.method.signature,
                "summary": target.method.summary,
                "flags": raised_flags(target.method.flags),
            }
            for target in skill_targets(directory, *having[0])
        ],
    }


def skill_targets(directory: AnyDirectory, entry: DeviceEntry, skill: RegisteredSkill) -> list[Target]:
    """Make the targets of all methods of a skill."""
    found = [Found(entry, skill, method) for method in skill.methods.values()]
    if skill.device_agnostic:
        return [of_any(directory, each) for each in found]
    return [on_device(each) for each in found]


def _class_text(directory: AnyDirectory, having: list[tuple[DeviceEntry, RegisteredSkill]]) -> str:
    entry, skill = having[0]
    targets = skill_targets(directory, entry, skill)
    doc = skill.registration.doc.strip().splitlines()
    lines = [f"class {skill.name}:"]
    if doc:
        lines += [f"    {line}".rstrip() for line in ('"""', *doc, '"""')]
    for target in targets:
        summary = f"  # {target.method.summary}" if target.method.summary else ""
        lines.append(f"    def {target.method.signature}: ...{summary}")
    lines += class_lines(target.method for target in targets)[: limits.MOST_CLASS_LINES]
    lines.append(f"# path: {targets[0].path.rpartition('.')[0]}" if targets else "# no functions")
    lines.append(f"# devices: {', '.join(_keys(having))}")
    return "\n".join((*lines, *_problem_lines(having)))


def _problem_lines(having: list[tuple[DeviceEntry, RegisteredSkill]]) -> list[str]:
    return [f"# problem on {entry.key}: {skill.problem}" for entry, skill in having if skill.problem]


def _parts(name: str) -> list[str]:
    return name.strip().partition("(")[0].split(".")


def _with_skill(
    directory: AnyDirectory, name: str, current: str | None
) -> list[tuple[DeviceEntry, RegisteredSkill]]:
    """Return the devices with a class that is named, the current one first; none if no class is named."""
    entries = _in_order(directory, current)
    match _parts(name):
        case [skill]:
            pass
        case ["device", skill]:
            entries = [entry for entry in entries if entry.id == current]
        case ["devices" | "device_manager", device, skill]:
            if device == HUB_KEY and skill not in directory.hub.skills:
                entries = [e for e in entries if skill in e.skills and e.skills[skill].device_agnostic]
            else:
                entries = [entry for entry in entries if device in (entry.key, entry.id)]
        case _:
            return []
    having = [(entry, entry.skills[skill]) for entry in entries if skill in entry.skills]
    return sorted(having, key=lambda each: _nearness(each[0], each[1], current))


def _keys(having: list[tuple[DeviceEntry, RegisteredSkill]]) -> tuple[str, ...]:
    return (HUB_KEY,) if having[0][1].device_agnostic else tuple(entry.key for entry, _ in having)


def _anywhere(directory: AnyDirectory, name: str, current: str | None) -> Target:
    """Find a method by ``Skill.method`` or ``method``: the current device's, else the provider's."""
    known: defaultdict[str, list[Found[Any]]] = defaultdict(list)
    for entry in _in_order(directory, current):
        for skill in entry.skills.values():
            known.setdefault(skill.name, [])
            for method in skill.methods.values():
                for called in (f"{skill.name}.{method.name}", method.name):
                    known[called].append(Found(entry, skill, method))
    if not known.get(name):
        raise CallError(
            ErrorCode.UNKNOWN_SKILL, f"no device has {name[:200]}", hint=suggestion(name[:200], known)
        )
    found = min(known[name], key=lambda each: _nearness(each.entry, each.skill, current))
    if found.skill.device_agnostic:
        return on_any(directory, found.skill.name, found.method.name)
    return on_device(found)


def _nearness(entry: DeviceEntry, skill: RegisteredSkill, current: str | None) -> tuple[bool, bool]:
    # What serves the whole home comes before what one of several devices has.
    return entry.id != current, not skill.device_agnostic


def _devices_with(directory: AnyDirectory, target: Target) -> tuple[str, ...]:
    """Return the keys of the devices with this very skill: the same class, method and parameters."""
    return tuple(
        entry.key
        for entry in (*directory.entries(), directory.hub)
        if (skill := entry.skills.get(target.skill))
        and (method := skill.methods.get(target.method.name))
        and method.parameters == target.method.parameters
    )


def _in_order(directory: AnyDirectory, current: str | None) -> list[DeviceEntry]:
    """Return all devices and the hub, the current one first, then those that are connected."""
    entries = (*directory.entries(), directory.hub)
    return sorted(entries, key=lambda entry: (entry.id != current, not entry.connected))
