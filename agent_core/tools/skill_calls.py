"""Skill calls of a turn: checked, confirmed where needed, and reported as events."""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final, Protocol

from agent_core.search.catalogue import Catalogue, Target
from agent_core.skills.arguments import check_arguments
from agent_core.turn import TurnContext
from contracts.chat import ConfirmationWanted, SkillCalled
from contracts.errors import CallError, ErrorCode
from contracts.wire import Json

_MAX_DETAIL: Final = 2_000
"""Characters of an error that go into an event."""


class SkillCaller(Protocol):
    """Calls skills with the rights of one turn."""

    async def call(
        self,
        target: Target,
        arguments: Mapping[str, Json],
        *,
        confirmed: bool,
        on_progress: Callable[[Json], None],
    ) -> Json:
        """Call a method with checked arguments by name and wait for its result.

        Cancelling the caller cancels the call.

        Raises:
            CallError: If there is no result; ``needs_confirmation`` if a person must say yes first.
        """
        ...


class Confirmer(Protocol):
    """Asks the person of one turn."""

    @property
    def expires_s(self) -> float:
        """Seconds until no answer counts as no."""
        ...

    async def ask(self, tell: Callable[[str], None]) -> bool:
        """Open a question, call ``tell`` with its id, and wait for the answer."""
        ...


class SkillCalls:
    """Handles the calls of one run of a program.

    Attributes:
        untrusted: Whether text from outside has come in, before or during this run.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        caller: SkillCaller,
        confirmer: Confirmer | None,
        context: TurnContext,
        untrusted: bool = False,
    ) -> None:
        self.untrusted = untrusted
        self._catalogue = catalogue
        self._caller = caller
        self._confirmer = confirmer
        self._context = context
        self._numbers = count(1)

    async def handle(self, path: str, args: list[Json], kwargs: dict[str, Json]) -> Json:
        """Serve one call of the program.

        Raises:
            CallError: If there is no result; it becomes an exception in the program.
        """
        match path.split("."):
            case ["device" | "devices" | "device_manager", "search_skills" as name]:
                page = await self._catalogue.search(_only_text(name, args, kwargs, "query", default=""))
                return [found.as_json() for found in page.results]
            case ["device" | "devices" | "device_manager", "get_function_info" | "describe_function" as name]:
                return await self._catalogue.describe(_only_text(name, args, kwargs, "path"))
            case ["device" | "devices" | "device_manager", "get_skill_info" as name]:
                return await self._catalogue.describe_skill(_only_text(name, args, kwargs, "name"))
        target = await self._catalogue.resolve(path)
        return await self.call(target, args, kwargs)

    async def call(self, target: Target, args: list[Json], kwargs: dict[str, Json]) -> Json:
        """Call a method that was found, asking the person first where that is needed.

        Raises:
            CallError: If there is no result, or the person says no.
        """
        arguments = check_arguments(target.method, args, kwargs)
        id_ = f"{self._context.turn}-{next(self._numbers)}"

        def tell(state: str, detail: Json = None) -> None:
            self._context.emit(
                SkillCalled.model_validate(
                    {
                        "id": id_,
                        "path": target.path,
                        "device": target.device,
                        "state": state,
                        "detail": detail,
                    }
                )
            )

        tell("called", arguments)
        try:
            result = await self._confirmed_call(target, arguments, lambda value: tell("progress", value))
        except CallError as error:
            tell(
                "failed",
                {"code": error.code.value, "message": error.message[:_MAX_DETAIL], "hint": error.hint},
            )
            raise
        except BaseException:
            tell("failed", {"code": ErrorCode.CANCELLED.value, "message": "cancelled", "hint": ""})
            raise
        tell("done")
        return result

    async def _confirmed_call(
        self, target: Target, arguments: dict[str, Json], on_progress: Callable[[Json], None]
    ) -> Json:
        flags = target.method.flags
        confirmed = False
        if flags.confirm or (self.untrusted and (flags.destructive or flags.open_world)):
            await self._confirm(target, arguments)
            confirmed = True
        # Set before the call: another one may run at the same time, and results come in any order.
        self.untrusted = self.untrusted or flags.untrusted_output
        try:
            return await self._caller.call(target, arguments, confirmed=confirmed, on_progress=on_progress)
        except CallError as error:
            if error.code is not ErrorCode.NEEDS_CONFIRMATION or confirmed:
                raise
        await self._confirm(target, arguments)
        return await self._caller.call(target, arguments, confirmed=True, on_progress=on_progress)

    async def _confirm(self, target: Target, arguments: dict[str, Json]) -> None:
        """Ask for exactly this call; the yes is used up by the call that follows."""
        method = f"{target.skill}.{target.method.name}"
        if self._confirmer is None:
            raise CallError(
                ErrorCode.REFUSED,
                f"{method} needs a person's confirmation, and nobody can be asked here",
                hint="Tell the user to do it where questions can be answered, such as strawberry chat.",
                device=target.device,
            )
        expires_s = self._confirmer.expires_s

        def tell(question: str) -> None:
            self._context.emit(
                ConfirmationWanted(
                    id=question,
                    turn=self._context.turn,
                    device=target.device,
                    device_name=target.device_name,
                    method=method,
                    arguments=arguments,
                    expires_s=expires_s,
                )
            )

        with self._context.paused():
            approved = await self._confirmer.ask(tell)
        if not approved:
            raise CallError(
                ErrorCode.REFUSED,
                f"the user did not confirm {method}",
                hint="Do not try it again; say that it was not done.",
                device=target.device,
            )


def _only_text(
    name: str, args: list[Json], kwargs: Mapping[str, Json], key: str, *, default: str | None = None
) -> str:
    given: list[Any] = [*args, *kwargs.values()]
    if len(given) == 1 and isinstance(given[0], str):
        return given[0]
    if not given and default is not None:
        return default
    raise CallError(ErrorCode.BAD_ARGUMENTS, f"{name} takes one text: {key}")
