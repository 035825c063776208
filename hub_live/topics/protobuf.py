"""Payloads in protocol buffers, decoded by a descriptor set and the type that a topic pattern names."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from contracts.errors import ConfigError
from contracts.topics import is_filter
from contracts.validation import did_you_mean
from contracts.wire import Json
from hub_live import limits
from hub_live.topics.decoding import MAX_DEPTH, Decoder, blob

MEDIA: Final = "application/x-protobuf"


def load_patterns(files: Sequence[Path], topics: Mapping[str, str]) -> list[tuple[str, Decoder]]:
    """Return the decoders of topic patterns, for `Decoding`.

    Args:
        files: Descriptor sets, as ``protoc --include_imports --descriptor_set_out=FILE`` writes them.
        topics: The full name of a message type for each pattern.

    Raises:
        ConfigError: If a file cannot be used, or does not have a type.
    """
    pool, names = DescriptorPool(), []
    for file in files:
        for each in _read(file).file:
            try:
                pool.Add(each)
            except TypeError as error:
                raise ConfigError(
                    "{file}: {name} cannot be used: {error}",
                    file=file,
                    name=each.name,
                    error=error,
                    hint="Make it with: protoc --include_imports --descriptor_set_out=FILE",
                ) from None
            package = f"{each.package}." if each.package else ""
            names += [package + message.name for message in each.message_type]
    patterns: list[tuple[str, Decoder]] = []
    for pattern, name in topics.items():
        if not is_filter(pattern):
            raise ConfigError(
                "[protobuf.topics]: {pattern!r} is not a topic filter",
                pattern=pattern,
                hint="'+' stands for one whole level, and '#' for all the last ones.",
            )
        try:
            kind = GetMessageClass(pool.FindMessageTypeByName(name))
        except (KeyError, TypeError):
            raise ConfigError(
                "[protobuf.topics]: no descriptor set has the message {name!r}{nearest}",
                name=name,
                nearest=did_you_mean(name, names),
                known=", ".join(sorted(names)[:20]) or "none",
                hint="Known messages: {known}.",
            ) from None
        patterns.append((pattern, _Decoder(kind)))
    return patterns


def _read(file: Path) -> FileDescriptorSet:
    try:
        return FileDescriptorSet.FromString(file.read_bytes())
    except OSError as error:
        raise ConfigError("{file} cannot be read: {reason}", file=file, reason=error.strerror) from None
    except DecodeError:
        raise ConfigError(
            "{file} is not a descriptor set",
            file=file,
            hint="Make it with: protoc --include_imports --descriptor_set_out=FILE",
        ) from None


class _TooMuch(Exception):
    """The message has too many values, or too many levels."""


class _Decoder:
    """Decodes the messages of one type."""

    def __init__(self, kind: type[Message]) -> None:
        self._kind = kind

    def __call__(self, payload: bytes) -> Json:
        """Return the fields by name; the description of a blob where it is not such a message."""
        try:
            return _Values().of(self._kind.FromString(payload), 0)
        except (DecodeError, _TooMuch):
            return blob(payload, MEDIA)


class _Values:
    """Makes JSON of a message: numbers as numbers, names of enums, bytes as blobs.

    `google.protobuf.json_format` writes 64-bit integers as text, which cannot be compared.
    """

    def __init__(self) -> None:
        self._left = limits.MOST_PROTOBUF_VALUES

    def of(self, message: Message, depth: int) -> dict[str, Json]:
        """Return the fields that are set, and those whose default cannot be told from a value."""
        if depth == MAX_DEPTH:
            raise _TooMuch
        values: dict[str, Json] = {}
        for field in message.DESCRIPTOR.fields:
            if field.has_presence and not message.HasField(field.name):
                continue
            value = getattr(message, field.name)
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                content = field.message_type.fields_by_name["value"]
                values[field.name] = {str(key): self._one(content, value[key], depth) for key in value}
            elif field.is_repeated:
                values[field.name] = [self._one(field, each, depth) for each in value]
            else:
                values[field.name] = self._one(field, value, depth)
        return values

    def _one(self, field: Any, value: Any, depth: int) -> Json:
        self._left -= 1
        if self._left < 0:
            raise _TooMuch
        if field.message_type is not None:
            return self.of(value, depth + 1)
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            return known.name if known is not None else value
        if isinstance(value, bytes):
            return blob(value)
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value
