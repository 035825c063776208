"""What of a registration counts, given what the owner of the home has approved.

A device describes itself, so its description is a request. Until the owner approves it, a method keeps the
strictest flags that it ever had, a sentence with free text matches only messages from the device itself,
a skill that another device provides for the whole home is only called on the device by name, and a model
sees names and signatures without documentation.
"""

import ast
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from agent_core.schemas.foreign_schema import without_text
from agent_core.search.catalogue import raised_flags
from agent_core.search.directory import RegisteredSkill
from agent_core.search.targets import strictest
from agent_core.sentences.templates import free_sentences
from contracts.answers.devices import Item
from contracts.devices.registration import Method, MethodFlags, Unavailable
from contracts.wire import Part, shown_digest
from hub_registry import limits

Role = Literal["none", "sample", "first", "approved"]
"""How a device came to provide a device-agnostic skill.

A ``sample`` of ours needs no approval for as long as it is one, the ``first`` provider had no other before
it, and an ``approved`` one comes before both.
"""

SAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "CalculatorSkill": ("f0eea7728ee1e9dbfa95dc8171192d48eb870fce8847b6eb26f68ed6c090f8a0",),
    "TimeSkill": ("b5182ee28c559678fcb874d105f1f70cbd76acbc1b6cd855f174d2308ee33d40",),
    "LampSkill": ("1dfaf1f0d5a05aea640614c34e6e4b1b2cd9786873a0063cfe7c1195e5ce5657",),
    "MediaSkill": ("d5f474c0f7fd8d499889ea112477b6378a8702e0c70eafe3141b45aba0e56b76",),
    "NotesSkill": ("b3e9969c6344b6c5d543b77e9613e9326c01cf713279a2dcfcdd5b8760721df5",),
    "SystemSkill": ("97c3232e57f5821e42212c6b53d3a95858bf8c18b9cf02c3761315e46605a85c",),
    "GpioSkill": ("c203ac1c97982b8f8196179d7e6da590815d4c13caa2aed9585bc8ee1bf410a8",),
    "SerialSkill": ("a57d62fd74149a6348ab031d3c1dcc5f94de52ffbaa1fc2c3ef074fc820c3c6e",),
    "CameraSkill": ("30ccf2c2ff25f2039176f00f932b3bbb4e876837050c3504e78ac8684906b0ed",),
}
"""Digests of the samples that come with Strawberry, by skill, those of earlier releases included.

A name proves nothing, and a whole definition at least that its words are ours; see `definition_digest`.
"""

APPROVED_RANK: Final = 1_000
_OTHER_RANK: Final = 2_000
"""Ranks below are the places in the owner's own order of providers."""

_STRICTEST: Final = MethodFlags(destructive=True, open_world=True, confirm=True, untrusted_output=True)
_PROSE: Final = re.compile(r"[#\n\r\\]")
_WORD: Final = re.compile(r"[\w.+%-]{0,32}")


class Known(Part):
    """What is known of a skill of a device for as long as the device is there.

    Attributes:
        flags: By method, also of methods that are gone.
        sentences: Digests of the sentences with free text that were approved.
        uses: What of other devices it may call.
        documentation: What was approved of each method, and of the class under an empty name.
        denied: Digests of what the owner does not want to see again.
        allowed: By method whose author declared nothing, the digest with which the model calls it unasked.
        place: In the owner's order of providers.
    """

    flags: dict[str, MethodFlags] = {}
    sentences: list[str] = []
    uses: list[str] = []
    documentation: dict[str, str] = {}
    role: Role = "none"
    denied: list[str] = []
    allowed: dict[str, str] = {}
    place: int | None = None


@dataclass(frozen=True)
class Reviewed:
    """The outcome of a review.

    Attributes:
        skill: What counts of the registration.
        items: What does not count until it is approved.
        known: What to remember from now on.
    """

    skill: RegisteredSkill
    items: tuple[Item, ...]
    known: Known


def review(
    skill: RegisteredSkill, known: Known, *, trusted: bool, provided: bool, room: bool = True
) -> Reviewed:
    """Return what of a registration counts now.

    Args:
        skill: As the device signed it.
        known: What is known of this skill of the device.
        trusted: Whether the owner trusts the device with what it declares.
        provided: Whether another device provides this device-agnostic skill.
        room: Whether flags of further methods can be remembered; if not, those count as the strictest.
    """
    if trusted or (skill.name in SAMPLES and definition_digest(skill) in SAMPLES[skill.name]):
        role: Role = "sample" if provided and not trusted else "first"
        if not skill.device_agnostic or known.role in ("first", "approved"):
            role = known.role
        flags = {method.name: method.flags for method in skill.methods.values()}
        known = known.model_copy(update={"flags": known.flags | flags, "role": role})
        return Reviewed(_ranked(skill, known, trusted=trusted), (), known)

    items: list[Item] = []
    flags = dict(known.flags)
    methods: list[Method] = []
    own: set[str] = set()
    for method in skill.registration.methods:
        counting: dict[str, object] = {}
        before = flags.get(method.name, method.flags if room else _STRICTEST)
        if before != method.flags:
            before = counting["flags"] = strictest([before, method.flags])
            if before != method.flags:
                texts = _flags_text(before), _flags_text(method.flags)
                items.append(Item("flags", skill.name, method.name, *texts))
        flags[method.name] = before
        bare, text = without_documentation(method)
        known_text = known.documentation.get(method.name, "")
        if text and text != known_text:
            items.append(Item("documentation", skill.name, method.name, known_text, text))
            counting |= bare
        method = method.model_copy(update=counting) if counting else method
        for sentence, item in _free_sentences(skill.name, method):
            if item.digest not in known.sentences:
                items.append(item)
                own.add(sentence)
        methods.append(method)
    doc, agnostic = skill.registration.doc, skill.device_agnostic
    # The kind is ours; what the device writes of it could be an instruction to a model.
    why = skill.registration.unavailable and Unavailable(kind=skill.registration.unavailable.kind)
    known_text = known.documentation.get("", "")
    if doc and doc != known_text:
        items.append(Item("documentation", skill.name, "", known_text, doc))
        doc = ""
    uses = [each for each in skill.registration.uses if each in known.uses]
    items += (Item("uses", skill.name, "", "", each) for each in skill.registration.uses if each not in uses)
    role = known.role
    if agnostic and role not in ("first", "approved"):
        item = Item("provider", skill.name, "", "", f"serves devices.hub.{skill.name}")
        if provided or item.digest in known.denied:
            items.append(item)
            agnostic = False
            own.update(text for method in methods for texts in method.sentences.values() for text in texts)
        else:
            role = "first"
    known = known.model_copy(update={"flags": flags, "role": role})
    declared = {"doc": doc, "device_agnostic": agnostic, "methods": methods, "unavailable": why, "uses": uses}
    effective = replace(
        skill,
        registration=skill.registration.model_copy(update=declared),
        methods={method.name: method for method in methods},
        own_sentences=frozenset(own),
    )
    if known.denied:
        items = [replace(item, denied=item.digest in known.denied) for item in items]
    return Reviewed(_ranked(effective, known, trusted=False), tuple(items), known)


def approved(skill: RegisteredSkill, known: Known) -> Known:
    """Return what is known once everything that a registration declares is approved."""
    methods = skill.registration.methods
    documentation = {method.name: without_documentation(method)[1] for method in methods}
    sentences = [item.digest for method in methods for _, item in _free_sentences(skill.name, method)]
    return known.model_copy(
        update={
            "flags": known.flags | {method.name: method.flags for method in methods},
            "sentences": sentences,
            "uses": skill.registration.uses,
            "documentation": documentation | {"": skill.registration.doc},
            "role": "approved" if skill.device_agnostic else known.role,
            "denied": [],
        }
    )


def with_allowed(skill: RegisteredSkill, known: Known) -> RegisteredSkill:
    """Return a skill in which what its author left unknown is known where the owner allowed it."""
    declared = {
        name: method.model_copy(update={"flags": method.flags.model_copy(update={"unknown": False})})
        for name, method in skill.methods.items()
        if method.flags.unknown and known.allowed.get(name) == method.digest
    }
    if not declared:
        return skill
    methods = {**skill.methods, **declared}
    registration = skill.registration.model_copy(update={"methods": list(methods.values())})
    return replace(skill, registration=registration, methods=methods)


def without_documentation(method: Method) -> tuple[dict[str, object], str]:
    """Return what of a method is different without any prose in it, and the text that is left out then."""
    removed: list[str] = [method.doc] if method.doc else []
    parameters = without_text(method.parameters, removed, "parameters")
    result = without_text(method.result, removed, "result")
    signature = method.signature
    if not _is_plain(signature):
        removed.insert(0, signature)
        signature = f"{method.name}({', '.join(parameters.get('properties', ()))})"
    bare = {"signature": signature, "doc": "", "parameters": parameters, "result": result}
    return bare, "\n".join(removed)


def definition_digest(skill: RegisteredSkill) -> str:
    """Return the SHA-256 of all that a registration declares, without what a signature adds."""
    # Without defaults: a field that a later release adds does not make all that was approved unknown.
    declared = skill.registration.model_dump(mode="json", exclude_defaults=True, exclude={"unavailable"})
    return shown_digest(declared)


def digest_of(items: Iterable[Item]) -> str:
    # So that only what was shown is approved.
    return shown_digest(sorted(item.digest for item in items))


def _ranked(skill: RegisteredSkill, known: Known, *, trusted: bool) -> RegisteredSkill:
    rank = APPROVED_RANK if trusted or known.role == "approved" else _OTHER_RANK
    return replace(skill, rank=rank if known.place is None else known.place)


def _free_sentences(skill: str, method: Method) -> list[tuple[str, Item]]:
    return [
        (sentence, Item("sentence", skill, method.name, "", f"{language}: {sentence}"))
        for language, sentence in free_sentences(method)
    ]


def _flags_text(flags: MethodFlags) -> str:
    return ", ".join(raised_flags(flags)) or "none"


@functools.lru_cache(maxsize=4_096)
def _is_plain(signature: str) -> bool:
    """Return whether a signature is Python and has no text in it but names and single words."""
    if len(signature) > limits.MAX_SIGNATURE or _PROSE.search(signature):
        return False
    try:
        tree = ast.parse(f"def {signature}: ...")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    # The body is the dots alone, so that nothing follows the signature.
    return (
        len(tree.body) == 1
        and isinstance(function := tree.body[0], ast.FunctionDef)
        and ast.dump(function.body[0]) == "Expr(value=Constant(value=Ellipsis))"
        and len(function.body) == 1
        and all(
            isinstance(node.value, str) and _WORD.fullmatch(node.value) is not None
            for node in ast.walk(function)
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        )
    )
