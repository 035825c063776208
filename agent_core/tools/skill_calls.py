"""Skill calls of a turn: checked, confirmed where needed, and reported as events."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import count
from typing import Any, Final, Literal, Protocol

from agent_core import limits
from agent_core.schemas.arguments import check_arguments, secret_arguments, without_secrets
from agent_core.search.catalogue import Catalogue, SkillCall, Target
from agent_core.search.directory import HUB_KEY
from agent_core.skills.questions import labels_of_call, questions_of
from agent_core.turn import TurnContext
from contracts.chat.messages import ConfirmationWanted, SkillCalled
from contracts.errors import CallError, Declined, ErrorCode
from contracts.tracing.correlation import correlated, ids
from contracts.tracing.trace import Span, place, span, within
from contracts.wire import Json

MAX_QUESTIONS: Final = 3
"""Questions of one turn: a person who is asked again and again says yes in the end."""


class SkillCaller(Protocol):
    """Calls skills with the rights of one turn."""

    async def call(self, call: SkillCall) -> Json:
        """Call a method and wait for its result. Cancelling the caller cancels the call.

        Raises:
            CallError: If there is no result; ``needs_confirmation`` if a person must say yes first.
        """


class Confirmer(Protocol):
    """Asks the person of one turn."""

    @property
    def expires_s(self) -> float:
        """Seconds until no answer counts as no."""

    async def ask(self, tell: Callable[[str], None]) -> bool:
        """Open a question, call ``tell`` with its id, and wait for the answer."""


@dataclass(eq=False)
class Consent:
    """Decides which calls of one turn need a person's yes, and asks for it.

    There is one question at a time, and few in a turn. A refusal holds for its method until the turn ends,
    whatever the arguments and the device.

    Attributes:
        confirmer: Asks the person; without one, a call that needs a confirmation is refused.
        on_refused: Called with each call that is refused here.
        where: Where it can be confirmed, for the error.

    Attributes:
        untrusted: Whether text that may be a stranger's is in the turn's context.
        question: What the person is asked as the answer of the turn, where "yes" is the next message.
        heard: Ids of the devices whose texts the model has read; what destroys something or leaves the home
            needs a yes then, on any other device.
    """

    confirmer: Confirmer | None
    _: KW_ONLY
    untrusted: bool = False
    on_refused: Callable[[SkillCall], None] | None = None
    where: str = ""

    def __post_init__(self) -> None:
        self.question = ""
        self.heard: set[str] = set()
        self._asked = 0
        self._refused: set[str] = set()
        self._one = asyncio.Lock()

    def is_needed(self, target: Target, *, by_person: bool = False) -> bool:
        """Return whether a person must be asked before this method is called.

        Args:
            by_person: Whether it is a person's own act, and not what a model wants.
        """
        flags = target.method.flags
        if flags.unknown and not by_person:
            return True
        # Which device will serve is not known where any may.
        own = {target.device} - {HUB_KEY}
        is_foreign = self.untrusted or not self.heard <= own
        return flags.confirm or (is_foreign and (flags.destructive or flags.open_world))

    async def ask(self, call: SkillCall, context: TurnContext, *, wanted: CallError | None = None) -> None:
        """Ask for exactly this call; the yes is used up by the call that follows.

        Args:
            wanted: The error with which the method itself asks for it.

        Raises:
            CallError: ``refused`` unless the person says yes; ``needs_confirmation`` where none can be asked.
        """
        try:
            await self._ask(call, context, wanted)
        except CallError:
            if self.on_refused is not None:
                self.on_refused(call)
            raise

    async def _ask(self, call: SkillCall, context: TurnContext, wanted: CallError | None) -> None:
        hint = wanted.hint if wanted is not None else ""
        device, method = call.target.device, f"{call.target.skill}.{call.target.method.name}"
        if self.confirmer is None:
            raise CallError(
                ErrorCode.NEEDS_CONFIRMATION,
                "{method} needs a person's confirmation, which cannot be given here",
                method=method,
                hint=hint or self.where or WHERE_TO_CONFIRM,
                device=device,
            )
        async with self._one:
            if method not in self._refused:
                if self._asked >= MAX_QUESTIONS:
                    raise CallError(
                        ErrorCode.REFUSED,
                        "{method} needs a confirmation, and this turn has asked {asked} times already",
                        method=method,
                        asked=self._asked,
                        hint="Ask for the rest in a new message.",
                        device=device,
                    )
                self._asked += 1
                arguments = without_secrets(call.target.method, all_shown(call.arguments, wanted))
                if await self._approved(self.confirmer, call.target, method, arguments, context):
                    return
                self._refused.add(method)
        raise Declined(
            ErrorCode.REFUSED,
            "the user did not confirm {method}; it was not done",
            method=method,
            hint=hint,
            device=device,
        )

    async def _approved(
        self,
        confirmer: Confirmer,
        target: Target,
        method: str,
        arguments: Mapping[str, Json],
        context: TurnContext,
    ) -> bool:
        shown = shown_arguments(arguments)
        # Of a method that any device may serve it is not known which one's is allowed.
        is_allowable = target.method.flags.unknown and target.device != HUB_KEY

        def tell(question: str) -> None:
            context.emit(
                ConfirmationWanted(
                    id=question,
                    turn=context.turn,
                    device=target.device,
                    device_name=target.device_name,
                    method=method,
                    summary=target.method.summary,
                    questions=questions_of(target, arguments),
                    labels=labels_of_call(target.labels, target.skill, target.method.name, arguments),
                    arguments=shown,
                    cut=shown != arguments,
                    lasting=target.method.digest if is_allowable else "",
                    expires_s=confirmer.expires_s,
                )
            )

        with context.paused(), span("confirmation", method, device=target.device) as at:
            is_approved = await confirmer.ask(tell)
            if not is_approved:
                at.failed("not confirmed")
            return is_approved


WHERE_TO_CONFIRM: Final = (
    "It can be confirmed in the browser. 'strawberry chat' at the hub asks, too, and so does a device after "
    "'strawberry devices set NAME --confirm on'."
)


def all_shown(arguments: Mapping[str, Json], wanted: CallError | None) -> dict[str, Json]:
    """Return what a person confirms: the arguments, and first what the method adds to them."""
    added = {} if wanted is None else wanted.shown
    return {**added, **arguments, **added}


def shown_arguments(arguments: Mapping[str, Json]) -> dict[str, Json]:
    """Return the arguments as far as a person can take them in; what is too long is cut text."""
    shown: dict[str, Json] = {}
    left = limits.MAX_ARGUMENTS_SHOWN
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        left -= len(name) + len(text)
        room = min(limits.MAX_ARGUMENT_SHOWN, left + len(text))
        if room < 1:
            break
        shown[name] = value if len(text) <= room else f"{text[:room]}…"
    return shown


@dataclass(eq=False)
class SkillCalls:
    """Handles the calls of one run of a program.

    Attributes:
        waiting: See `SkillCall`.
        by_sentence: See `SkillCall`.
        by_person: Whether the calls are a person's own act; see `Consent.is_needed`.
        answered: Ids of the devices whose texts came back.
    """

    catalogue: Catalogue
    _: KW_ONLY
    caller: SkillCaller
    consent: Consent
    context: TurnContext
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext
    by_sentence: bool = False
    by_person: bool = False
    answered: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._numbers = count(1)
        # A program's calls arrive in a task of its process, which does not know the turn.
        self._place, self._ids = place(), ids()

    async def handle(self, path: str, args: list[Json], kwargs: dict[str, Json]) -> Json:
        """Serve one call of the program.

        Raises:
            CallError: If there is no result; it becomes an exception in the program.
        """
        with within(self._place), correlated(**self._ids), span("skill", path) as at:
            match path.split("."):
                case ["device" | "devices" | "device_manager", "search_skills" as name]:
                    page = await self.catalogue.search(_only_text(name, args, kwargs, "query", default=""))
                    return [found.as_json() for found in page.results]
                case [
                    "device" | "devices" | "device_manager",
                    "get_function_info" | "describe_function" as name,
                ]:
                    return await self.catalogue.describe(_only_text(name, args, kwargs, "path"))
                case ["device" | "devices" | "device_manager", "get_skill_info" as name]:
                    return await self.catalogue.describe_skill(_only_text(name, args, kwargs, "name"))
            target = await self.catalogue.resolve(path)
            if not secret_arguments(target.method):
                at.note(arguments={**({"args": args} if args else {}), **kwargs} or None)
            return await self._call(target, args, kwargs, at)

    async def call(self, target: Target, args: list[Json], kwargs: dict[str, Json]) -> Json:
        """Call a method that was found, asking the person first where that is needed.

        Raises:
            CallError: If there is no result, or the person says no.
        """
        with span("skill", target.path) as at:
            return await self._call(target, args, kwargs, at)

    async def _call(self, target: Target, args: list[Json], kwargs: dict[str, Json], at: Span) -> Json:
        at.device = target.device
        arguments = check_arguments(target.method, args, kwargs)
        shown = without_secrets(target.method, arguments)
        at.note(arguments=shown or None)
        id_ = f"{self.context.turn}-{next(self._numbers)}"

        def tell(
            state: Literal["called", "progress", "done", "failed"],
            detail: Json = None,
            *,
            declined: bool = False,
        ) -> None:
            self.context.emit(
                SkillCalled(
                    id=id_,
                    path=target.path,
                    device=target.device,
                    state=state,
                    detail=detail,
                    declined=declined,
                )
            )

        tell("called", shown)
        try:
            result = await self._confirmed_call(
                SkillCall(
                    target,
                    arguments,
                    on_progress=lambda value: tell("progress", value),
                    waiting=self.waiting,
                    by_sentence=self.by_sentence,
                )
            )
        except CallError as error:
            self._note_answer(target)
            tell(
                "failed",
                {
                    "code": error.code.value,
                    "message": error.message[: limits.MAX_ERROR_DETAIL],
                    "hint": error.hint,
                },
                declined=isinstance(error, Declined),
            )
            raise
        except BaseException:
            tell("failed", {"code": ErrorCode.CANCELLED.value, "message": "cancelled", "hint": ""})
            raise
        tell("done")
        at.note(result=result)
        if _has_text(result):
            self._note_answer(target)
        return result

    def _note_answer(self, target: Target) -> None:
        # What the hub's own skills pass on of others is marked as untrusted; the rest is the hub's.
        if not target.is_hub_own:
            self.answered.add(target.device)

    async def _confirmed_call(self, call: SkillCall) -> Json:
        consent = self.consent
        needed = consent.is_needed(call.target, by_person=self.by_person or self.by_sentence)
        has_read = consent.untrusted or bool(consent.heard)
        call = replace(call, confirmed=needed, untrusted=consent.untrusted, has_read=has_read)
        if needed:
            await consent.ask(call, self.context)
        # Set before the call: another one may run at the same time, and results come in any order.
        consent.untrusted = call.untrusted or call.target.method.flags.untrusted_output
        try:
            return await self.caller.call(call)
        except CallError as error:
            if error.code is not ErrorCode.NEEDS_CONFIRMATION or needed:
                raise
            wanted = error
        await consent.ask(call, self.context, wanted=wanted)
        return await self.caller.call(replace(call, confirmed=True))


def _has_text(value: Json) -> bool:
    match value:
        case dict():
            return bool(value)  # its keys are text
        case list():
            return any(map(_has_text, value))
    return isinstance(value, str)


def _only_text(
    name: str, args: list[Json], kwargs: Mapping[str, Json], key: str, *, default: str | None = None
) -> str:
    given: list[Any] = [*args, *kwargs.values()]
    if len(given) == 1 and isinstance(given[0], str):
        return given[0]
    if not given and default is not None:
        return default
    raise CallError(ErrorCode.BAD_ARGUMENTS, "{name} takes one text: {key}", name=name, key=key)
