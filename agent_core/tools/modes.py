"""The two tool modes of a turn: the prompt and tools of each, and what runs its calls."""

from dataclasses import dataclass

from agent_core.gateway.protocol import Message, ModelRequest, Offer, ToolSpec
from agent_core.models.entries import ToolMode
from agent_core.tools.toolset import Toolset


@dataclass(frozen=True)
class NativeMode:
    """What models with ``tools = "native"`` get in place of the request's prompt and the turn's tools."""

    system: str
    toolset: Toolset


@dataclass(frozen=True)
class Offered:
    """The tools that are offered in one step; those of small models change from step to step."""

    code: tuple[ToolSpec, ...] = ()
    native: tuple[ToolSpec, ...] = ()

    @property
    def all(self) -> tuple[ToolSpec, ...]:
        """Those of both modes: the mode is known only when a model has answered."""
        return (*self.code, *(spec for spec in self.native if spec not in self.code))

    def to(self, mode: ToolMode) -> tuple[ToolSpec, ...]:
        """Those that models of a mode get."""
        return self.code if mode == "code" else self.native


class ToolModes:
    """Both modes of one turn.

    Args:
        system: The prompt of models that write code.
        toolset: Their tools; None for a turn in which nothing may be executed, in either mode.
        native: None where all models act alike.
    """

    def __init__(self, system: str, toolset: Toolset | None, native: NativeMode | None) -> None:
        self._system = system
        self._toolset = toolset
        self._native = native if toolset is not None else None

    def offered(self) -> Offered:
        """Return the tools as they are now."""
        return Offered(
            self._toolset.specs if self._toolset is not None else (),
            self._native.toolset.specs if self._native is not None else (),
        )

    def question(self, messages: tuple[Message, ...], offered: Offered) -> ModelRequest:
        """Make a question that each model gets in its own mode."""
        native = Offer(self._native.system, offered.native) if self._native is not None else None
        return ModelRequest(self._system, messages, offered.code, native=native)

    def toolset(self, mode: ToolMode) -> Toolset | None:
        """Return the toolset that runs the calls of a model; None where nothing may be executed."""
        return self._native.toolset if mode == "native" and self._native is not None else self._toolset
