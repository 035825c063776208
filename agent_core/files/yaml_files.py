"""YAML that people write, read into models; every mistake has its line.

Only plain data is read: no tags, and no anchors and aliases, by which a short text can become a very long
value.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from agent_core import limits
from contracts.errors import FileProblem
from contracts.validation import explain, first_mistake

MAX_BYTES: Final = 64 * 1024
"""Of one file: a prompt of many pages, and what PyYAML reads in a fifth of a second."""

Model = TypeVar("Model", bound=BaseModel)


def parse_yaml(text: str, kind: type[Model]) -> Model:
    """Read the text of a file.

    Raises:
        FileProblem: If it is not what it must be.
    """
    if len(text) > MAX_BYTES:
        raise FileProblem("is longer than {most:,} characters", most=MAX_BYTES)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        value = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _wrong(error.problem or "this is not YAML", mark) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise FileProblem("holds a character that YAML does not have", line=line) from None
    if node is None or not isinstance(value, dict):
        raise FileProblem(
            "holds no settings", fields=", ".join(kind.model_fields), hint="It may hold {fields}."
        )
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        mistake = explain(error, kind)
        raise _wrong(mistake, _mark_of(node, first_mistake(error.errors())["loc"])) from None


def line_of(text: str, *steps: str | int) -> int | None:
    """Return the line of a value in a text that `parse_yaml` reads; None if it is read no longer."""
    try:
        node = _Loader(text).get_single_node()
    except yaml.YAMLError:
        return None
    return None if node is None else _mark_of(node, steps).line + 1


class _Loader(yaml.SafeLoader):
    """Refuses tags, anchors, deep nesting, and a key that is given twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next value of the text."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.MarkedYAMLError(
                problem="anchors (&) and aliases (*) are not read", problem_mark=event.start_mark
            )
        if getattr(event, "tag", None):
            raise yaml.MarkedYAMLError(problem="tags (!) are not read", problem_mark=event.start_mark)
        if self._depth == limits.MAX_YAML_DEPTH:
            raise yaml.MarkedYAMLError(problem="this is nested too deep", problem_mark=event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Make a value."""
        try:
            return super().construct_object(node, deep)
        except ValueError:
            # A number with too many digits, a date that is none.
            raise yaml.MarkedYAMLError(
                problem="this value cannot be read; put it in quotes", problem_mark=node.start_mark
            ) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make the dictionary of a mapping."""
        seen = set[str]()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def _mark_of(node: yaml.Node, steps: Sequence[str | int]) -> yaml.Mark:
    """Return where a value stands; of one that is missing, where the nearest one around it does."""
    mark = node.start_mark
    for step in steps:
        match node:
            case yaml.MappingNode():
                found = next(((key, value) for key, value in node.value if key.value == step), None)
                if found is not None:
                    mark, node = found[0].start_mark, found[1]
            case yaml.SequenceNode() if isinstance(step, int):
                node = node.value[step]
                mark = node.start_mark
    return mark


def _wrong(problem: str, mark: yaml.Mark | None) -> FileProblem:
    return FileProblem(problem, line=None if mark is None else mark.line + 1)
