"""Settings of a skill: a model that its author declares, and values that are kept on the device.

A skill with ``Settings`` offers two more methods, ``get_settings`` and ``change_settings``: they are found,
called, confirmed and audited like any other.
"""

import json
import logging
import threading
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, SecretStr, ValidationError

from contracts.errors import CallError, ConfigError, ErrorCode
from contracts.validation import explain
from identity.files import write_private

_log = logging.getLogger(__name__)

_FILE: Final = "settings.json"


class StoredSettings:
    """The settings of one skill, in a file that only the owner of the device may read.

    Args:
        model: What the author declares; each field has a default.

    Raises:
        ConfigError: A field has no default.
    """

    def __init__(self, model: type[BaseModel], folder: Path) -> None:
        needed = [name for name, field in model.model_fields.items() if field.is_required()]
        if needed:
            raise ConfigError(
                "the setting {name} has no default", name=needed[0], hint="Give each setting one."
            )
        self._model = model
        self._path = folder / _FILE
        self._lock = threading.Lock()
        self._given = self._read()
        self.value = model.model_validate(self._given)

    def _read(self) -> dict[str, Any]:
        """Return the values that were set; those that no longer fit are left out."""
        try:
            given = json.loads(self._path.read_bytes())
            given = {name: given[name] for name in self._model.model_fields if name in given}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as error:
            _log.warning("%s cannot be read, so the settings have their defaults: %s", self._path, error)
            return {}
        try:
            self._model.model_validate(given)
        except ValidationError as error:
            wrong = {str(each["loc"][0]) if each["loc"] else "" for each in error.errors()}
            _log.warning("%s: the settings %s no longer fit", self._path, ", ".join(sorted(wrong)))
            given = {name: value for name, value in given.items() if name not in wrong and "" not in wrong}
        return given

    def change(self, given: dict[str, Any]) -> BaseModel:
        """Set what is given; the rest stays.

        Raises:
            CallError: ``bad_arguments`` where it does not fit together.
        """
        with self._lock:
            try:
                value = self._model.model_validate({**dict(self.value), **given})
            except ValidationError as error:
                message = explain(error, self._model, what="setting")
                raise CallError(ErrorCode.BAD_ARGUMENTS, message) from None
            stored = value.model_dump(mode="json", include={*self._given, *given})
            for name in stored:
                # A secret is stored as it is, and never shown.
                if isinstance(secret := getattr(value, name), SecretStr):
                    stored[name] = secret.get_secret_value()
            write_private(self._path, json.dumps(stored).encode())
            self._given, self.value = stored, value
        return value
