"""Settings of a skill: a model that its author declares, and values that are kept on the device.

A skill with ``Settings`` offers two more methods, ``get_settings`` and ``change_settings``: they are found,
called, confirmed and audited like any other. Its other methods wait for what has no value yet.
"""

import json
import logging
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from contracts.errors import CallError, ErrorCode
from contracts.validation import explain
from contracts.wire import Json
from identity.files import write_private

_log = logging.getLogger(__name__)

SETTINGS_METHODS: Final = frozenset({"get_settings", "change_settings"})
SETTINGS_HINT: Final = "Set it on the page of its device. Or run 'strawberry skills settings {skill}'."
_FILE: Final = "settings.json"
_MASK: Final = str(SecretStr("any"))


def variable_of(skill: str, setting: str) -> str:
    """Return the name of a setting in ``.env``: ``WEATHER_KEY`` for ``key`` of ``WeatherSkill``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", skill.removesuffix("Skill") or skill)
    return f"{words}_{setting}".upper()


class StoredSettings:
    """The settings of one skill, in a file that only the owner of the device may read.

    Args:
        model: What the author declares.
        skill: Name of the class.
        variables: Those of ``.env``; what was set by a person comes first.

    Attributes:
        missing: Names of the settings that need a value and have none.
    """

    def __init__(
        self, model: type[BaseModel], folder: Path, *, skill: str, variables: Mapping[str, str]
    ) -> None:
        self._model = model
        self._skill = skill
        self._path = folder / _FILE
        self._lock = threading.Lock()
        names = {name: variable_of(skill, name) for name in model.model_fields}
        from_env = {name: variables[each] for name, each in names.items() if variables.get(each)}
        self._stored = self._read()
        set_here = {name: self._stored[name] for name in names if name in self._stored}
        fitting = self._fitting({**from_env, **set_here})
        self._given = {name: each for name, each in fitting.items() if name in set_here}
        self._defaults = {name: each for name, each in fitting.items() if name not in set_here}
        self._value, self.missing = self._validated(fitting)

    @property
    def value(self) -> BaseModel:
        """The present values.

        Raises:
            CallError: ``skill_error`` while some are missing.
        """
        if self._value is None:
            names = ", ".join(self.missing)
            message = "{skill} lacks the setting {names}"
            raise CallError(
                ErrorCode.SKILL_ERROR, message, skill=self._skill, names=names, hint=SETTINGS_HINT
            )
        return self._value

    @property
    def shown(self) -> dict[str, Json]:
        """The present values without secrets; those that are missing are left out."""
        if self._value is not None:
            made: dict[str, Json] = self._value.model_dump(mode="json")
            return made
        given, shown = {**self._defaults, **self._given}, {}
        for name, field in self._model.model_fields.items():
            if name in given:
                hint: Any = Annotated[field.annotation, field]
                shown[name] = to_jsonable_python(TypeAdapter(hint).validate_python(given[name]))
            elif not field.is_required():
                shown[name] = to_jsonable_python(field.get_default(call_default_factory=True))
        return shown

    def _read(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as error:
            _log.warning("%s cannot be read, so the settings have their defaults: %s", self._path, error)
            return {}

    def _fitting(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the values that fit; the others are logged by name."""
        try:
            self._validated(given)
        except ValidationError as error:
            mistakes = [each["loc"] for each in error.errors() if not _is_missing(each)]
            wrong = {str(place[0]) if place else "" for place in mistakes}
            _log.warning("%s: the settings %s no longer fit", self._path, ", ".join(sorted(wrong)))
            return {} if "" in wrong else {name: each for name, each in given.items() if name not in wrong}
        return given

    def _validated(self, given: Mapping[str, Any]) -> tuple[BaseModel | None, tuple[str, ...]]:
        """Make the present values; where some are missing, return their names.

        Raises:
            ValidationError: What is given does not fit.
        """
        try:
            return self._model.model_validate(given), ()
        except ValidationError as error:
            if not all(map(_is_missing, error.errors())):
                raise
            return None, tuple(str(each["loc"][0]) for each in error.errors())

    def change(self, given: dict[str, Any]) -> dict[str, Json]:
        """Set what is given, and return what is shown of all; the rest stays.

        Raises:
            CallError: ``bad_arguments`` where it does not fit together.
        """
        with self._lock:
            # A secret is stored as it is, and never shown.
            plain = {name: to_jsonable_python(_revealed(each)) for name, each in given.items()}
            plain = {name: _unmasked(each, self._given.get(name)) for name, each in plain.items()}
            stored = {**self._given, **plain}
            try:
                value, missing = self._validated({**self._defaults, **stored})
            except ValidationError as error:
                message = explain(error, self._model, what="setting")
                raise CallError(ErrorCode.BAD_ARGUMENTS, message) from None
            # What does not fit this version of the skill may fit another one.
            self._stored |= stored
            write_private(self._path, json.dumps(self._stored).encode())
            self._given, self._value, self.missing = stored, value, missing
            return self.shown


def _revealed(value: Any) -> Any:
    """Return a value with the secrets in it, which would be stored as asterisks otherwise."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, BaseModel):
        return {name: _revealed(each) for name, each in value}
    if isinstance(value, dict):
        return {name: _revealed(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_revealed(each) for each in value]
    return value


def _unmasked(given: Any, present: Any) -> Any:
    """Return a value with the present secrets where it has their asterisks, as a form sends them back."""
    if given == _MASK:
        return given if present is None else present
    if isinstance(given, dict) and isinstance(present, dict):
        return {name: _unmasked(each, present.get(name)) for name, each in given.items()}
    if isinstance(given, list) and isinstance(present, list) and len(given) == len(present):
        return list(map(_unmasked, given, present))
    return given


def _is_missing(mistake: Any) -> bool:
    return mistake["type"] == "missing" and len(mistake["loc"]) == 1
