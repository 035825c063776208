"""The bundle for a report of a fault: what is installed, set and logged here, without secrets."""

import io
import json
import os
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote_plus, urlsplit

from agent_core.models.entries import KEYS_FILE, SETTINGS_FILE, read_keys, read_tables
from contracts import own_version
from contracts.errors import ConfigError, StrawberryError
from deploy import limits
from deploy.directory import Home
from deploy.doctor.checks import Check
from deploy.logs.logs import redact
from deploy.service.plan import KINDS
from deploy.service.systemd import Systemd
from deploy.update.installation import find_installation

_SHOWN: Final = frozenset(
    {"format", "kind", "language", "model", "name", "provider", "time_zone"}
    | {"barge_in", "speech_to_text", "text_to_speech", "tools", "units", "wake_engine"}
)
"""Settings whose texts are shown; of all others only numbers, switches and where an address leads."""
_REMOVED: Final = "[removed]"
_SECRET_NAME: Final = re.compile(r"key|token|secret|password|passwd|code|credential", re.IGNORECASE)
_FREE_NAMES: Final = frozenset({"args", "env", "headers", "people", "urls"})
"""What a program or server of others gets may be named as it likes, and an address of apprise is a secret."""
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
"""What a setting ``…_env`` is to hold; people paste the key itself there, and ask why that does not work."""
_QUERY_VALUE: Final = re.compile(r"[?&][^=&#\s]*=([^&#\s]+)")
_SECRET_FILES: Final = ("*.token", "*.pem", "*.key", "*.json")


def write_bundle(file: Path, home: Home, checks: Sequence[Check]) -> list[str]:
    """Write the bundle as a .zip that only its owner can read.

    Returns:
        The names of the files in it.

    Raises:
        ConfigError: If there is such a file.
    """
    texts = {
        "versions.json": _document(_versions()),
        "doctor.json": _document([asdict(check) for check in checks]),
        "settings.json": _document(_settings(home)),
        "files.txt": "\n".join(_files(home)),
        "log.txt": "\n".join(_log()),
    }
    secrets = sorted(
        {each for each in _secrets(home) if len(each) >= limits.SHORTEST_SECRET}, key=len, reverse=True
    )
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in texts.items():
            bundle.writestr(name, _without(text, secrets))
    try:
        # Not write_private: the directory is the person's, or everybody's.
        with open(file, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
            stream.write(content.getvalue())
    except FileExistsError:
        raise ConfigError("there is already a file {file}", file=file, hint="Name another one.") from None
    return list(texts)


def _without(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        # In JSON its quotes and letters may be escaped.
        for written in {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}:
            text = text.replace(written, _REMOVED)
    return redact(text).replace(str(Path.home()), "~")


def _document(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _versions() -> dict[str, Any]:
    installed = find_installation()
    return {
        "strawberry": own_version(),
        "installed": installed.kind,
        "python": sys.version,
        "system": platform.platform(),
        "machine": platform.machine(),
        "packages": dict(sorted((each.name, each.version) for each in distributions() if each.name)),
    }


def _settings(home: Home) -> dict[str, Any]:
    """Return the settings that are no private text, and the names of the variables."""
    try:
        names = sorted(read_keys(home.directory, {}))
    except StrawberryError as error:
        names = [error.message]
    try:
        tables = read_tables(home.directory)
    except ConfigError:
        tables = {"problem": "cannot be read"}
    return {SETTINGS_FILE: {name: _shown(name, value) for name, value in tables.items()}, KEYS_FILE: names}


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {each: _shown(each, inner) for each, inner in value.items()}
    if isinstance(value, list):
        return [_shown(name, inner) for inner in value]
    if isinstance(value, str):
        is_shown = _VARIABLE.fullmatch(value) if name.endswith("_env") else name in _SHOWN
        return value if is_shown else _address(value)
    # The place of the home is private.
    return _REMOVED if name in ("latitude", "longitude") else value


def _address(value: str) -> str:
    """Return scheme, host and port of an address; nothing of any other text."""
    try:
        parts = urlsplit(value)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return _REMOVED
    if parts.scheme not in ("http", "https", "mqtt", "mqtts", "ws", "wss", "tcp") or not parts.hostname:
        return _REMOVED
    return f"{parts.scheme}://{parts.hostname}{port}"


def _files(home: Home) -> Iterator[str]:
    """Yield mode, size and path of the files of the first two levels."""
    for path in sorted((*home.directory.glob("*"), *home.directory.glob("*/*"))):
        try:
            status = path.lstat()
        except OSError:
            continue
        yield f"{status.st_mode & 0o7777:04o} {status.st_size:>12} {path.relative_to(home.directory)}"


def _log() -> Iterator[str]:
    """Yield what the services of this machine wrote last."""
    for system in (False, True):
        command = Systemd(system=system).log_command(
            KINDS, lines=limits.SUPPORT_LOG_LINES, follow=False, as_json=False
        )
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limits.JOURNAL_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            yield f"no journal: {type(error).__name__}"
            continue
        yield from done.stdout.splitlines()
    yield "What was started by hand writes its log to its terminal: add it to the report."


def _secrets(home: Home) -> Iterator[str]:
    """Yield every value of this home that is a secret by its place or its name."""
    try:
        yield from read_keys(home.directory, {}).values()
    except (StrawberryError, OSError):
        yield from _assigned(home.directory / KEYS_FILE)
    yield from (value for name, value in os.environ.items() if _SECRET_NAME.search(name))
    try:
        yield from _named_secrets(read_tables(home.directory))
    except ConfigError:
        yield from _assigned(home.directory / SETTINGS_FILE)
    for pattern in _SECRET_FILES:
        for file in (*home.directory.glob(pattern), *home.directory.glob(f"*/{pattern}")):
            if pattern != "*.json":
                yield from _lines(file)
                continue
            try:
                yield from _named_secrets(json.loads("\n".join(_lines(file))))
            except ValueError:
                yield from _lines(file)


def _lines(file: Path) -> list[str]:
    try:
        if file.is_file() and file.stat().st_size <= limits.MAX_SUPPORT_FILE_BYTES:
            return [line.strip() for line in file.read_text("utf-8", errors="replace").splitlines()]
    except OSError:
        pass
    return []


def _assigned(file: Path) -> Iterator[str]:
    """Yield what may be a secret in a file of settings that cannot be read: all values, with their parts."""
    for line in _lines(file):
        yield line
        name, is_assigned, value = line.partition("=")
        if line.startswith(("#", "[")) or name.strip() in _SHOWN:
            continue
        for part in re.split(r"""["',{}\[\]]+""", value if is_assigned else line):
            yield from _named_secrets(part.strip(), named=True)


def _named_secrets(value: Any, *, named: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name.endswith("_env") and _VARIABLE.fullmatch(str(inner)):
                continue
            secret = named or name in _FREE_NAMES or bool(_SECRET_NAME.search(name))
            yield from _named_secrets(inner, named=secret)
    elif isinstance(value, list):
        for inner in value:
            yield from _named_secrets(inner, named=named)
    elif isinstance(value, str):
        for found in _QUERY_VALUE.findall(value):
            yield from (found, unquote_plus(found))
        if named:
            # A part alone, too: of "Basic …", "--password=…" and "ntfy://host/topic".
            yield from (value, *re.split(r"[\s=/@:?&]+" if "://" in value else r"[\s=]+", value))
