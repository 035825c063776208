"""Functions that are called when something happens."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Listeners(Generic[F]):
    """The functions that want to know of one thing, in the order in which they came.

    Called with a function, it adds that and returns its undoing. What is called may end itself meanwhile.

    Example:
        ``stop = directory.on_change(hear)``; ``for listener in self.on_change: listener("nas")``
    """

    def __init__(self) -> None:
        self._functions: list[F] = []

    def __call__(self, function: F, /) -> Callable[[], None]:
        self._functions.append(function)
        return partial(self._functions.remove, function)

    def __iter__(self) -> Iterator[F]:
        return iter(tuple(self._functions))
