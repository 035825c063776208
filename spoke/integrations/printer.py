"""A printer in the network (IPP): its state, and printing text."""

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from contracts.errors import InvalidMessage, LinkError
from spoke.integrations._fetch import fetch
from strawberry_skills import Skill, Unit, skill_method

_MAX_BYTES: Final = 256 * 1024
_OF_OPERATION, _OF_JOB, _END = 1, 2, 3
_INTEGER, _ENUM, _NAME, _URI, _CHARSET, _LANGUAGE, _MEDIA_TYPE = 0x21, 0x23, 0x42, 0x45, 0x47, 0x48, 0x49
"""Tags of RFC 8010, 3.5: groups, and types of values."""
_PRINT_JOB, _GET_PRINTER = 0x0002, 0x000B
_STATES: Final = {3: "idle", 4: "printing", 5: "stopped"}
_FIRST_ERROR: Final = 0x0400
_COLUMNS, _ROWS = 90, 64
"""Characters of a page of A4, with 10 points of Courier; a page of US Letter has room for them, too."""

_ESCAPED: Final = re.compile(rb"[()\\]")

Attributes = Mapping[str, Sequence[int | str]]
Percent = Annotated[int, Unit("%")]
Text = Annotated[str, Field(min_length=1, max_length=20_000)]
Copies = Annotated[int, Field(ge=1, le=5)]


@dataclass
class PrinterStatus:
    """How a printer is: what hinders it, and how full each of its cartridges is, as far as it says."""

    name: str
    state: str
    problems: list[str]
    waiting: int
    supplies: dict[str, Percent]


class PrinterSkill(Skill):
    """The printer: whether it is ready, what it lacks, and text printed on paper."""

    labels = {
        "de": {"PrinterSkill": "Drucker", "print_text": "Text drucken", "copies": "Kopien", "idle": "Bereit"}
        | {"printer": "Drucker", "problems": "Störungen", "waiting": "Wartende Aufträge"}
        | {"supplies": "Vorräte", "printing": "Druckt", "stopped": "Angehalten"},
    }

    class Settings(BaseModel):
        """The address of the printer, as its network page or ``lpstat -v`` shows it."""

        printer: Annotated[str, Field(pattern=r"^ipps?://[^\s/@]+/\S*$", description="ipp://host/ipp/print")]

    @skill_method(
        read_only=True,
        sentences={
            "en": ["is the printer ready", "how is the printer", "how much ink is left"],
            "de": ["ist der Drucker bereit", "wie viel (Tinte|Toner) ist noch da"],
        },
        responses={
            "en": "{result.name} is {result.state}[: {result.problems}][. {result.supplies}].",
            "de": "{result.name}: {result.state:idle=bereit|printing=druckt|stopped=angehalten}"
            "[, {result.problems}][. {result.supplies}].",
        },
    )
    async def status(self) -> PrinterStatus:
        """Return whether the printer is ready, what hinders it, and how much ink or toner is left."""
        found = await self._ask(_GET_PRINTER)
        levels = zip(_texts(found, "marker-names"), found.get("marker-levels", []), strict=False)
        # A level below 0 says that it is not known.
        supplies = {name: int(level) for name, level in levels if level in range(101)}
        name = (_texts(found, "printer-info") or ["Printer"])[0]
        state = _STATES.get(int(found.get("printer-state", [0])[0]), "unknown")
        problems = [each for each in _texts(found, "printer-state-reasons") if each != "none"]
        return PrinterStatus(name, state, problems, int(found.get("queued-job-count", [0])[0]), supplies)

    @skill_method(
        timeout_s=60,
        sentences={"en": ["print the text {text}"], "de": ["drucke den Text {text}"]},
        responses={"en": "It is being printed.", "de": "Es wird gedruckt."},
    )
    async def print_text(self, text: Text, copies: Copies = 1) -> None:
        """Print a text on paper.

        Args:
            text: What it says; a line of more than 90 characters is continued on the next one.
            copies: How many times.
        """
        formats = _texts(await self._ask(_GET_PRINTER), "document-format-supported")
        kind = "application/pdf" if "application/pdf" in formats else "text/plain"
        job = _attribute(_NAME, "job-name", b"Strawberry")
        job += _attribute(_MEDIA_TYPE, "document-format", kind.encode())
        job += bytes([_OF_JOB]) + _attribute(_INTEGER, "copies", struct.pack(">i", copies))
        await self._ask(_PRINT_JOB, job, _pdf(text) if kind == "application/pdf" else text.encode())

    async def _ask(self, operation: int, more: bytes = b"", document: bytes = b"") -> Attributes:
        address: str = self.settings.printer
        request = struct.pack(">HHi", 0x0101, operation, 1) + bytes([_OF_OPERATION])
        request += _attribute(_CHARSET, "attributes-charset", b"utf-8")
        request += _attribute(_LANGUAGE, "attributes-natural-language", b"en")
        request += _attribute(_URI, "printer-uri", address.encode())
        parts = urlsplit(address)
        place = parts.netloc if parts.port else f"{parts.netloc}:631"
        answer = await fetch(
            f"{'https' if parts.scheme == 'ipps' else 'http'}://{place}{parts.path}",
            method="POST",
            headers={"content-type": "application/ipp"},
            body=request + more + bytes([_END]) + document,
            max_bytes=_MAX_BYTES,
            allow_private=True,  # its owner chose it, and it is in the home
        )
        status, found = _decoded(answer.content)
        if status >= _FIRST_ERROR:
            raise LinkError("the printer refuses that (IPP status {status})", status=f"0x{status:04x}")
        return found


def _attribute(tag: int, name: str, value: bytes) -> bytes:
    return struct.pack(">BH", tag, len(name)) + name.encode() + struct.pack(">H", len(value)) + value


def _decoded(message: bytes) -> tuple[int, Attributes]:
    """Return the status of an answer and the values of its attributes, of the first group that has them.

    Raises:
        InvalidMessage: It is no IPP.
    """
    found: dict[str, list[int | str]] = {}
    name, at = "", 8
    try:
        (status,) = struct.unpack_from(">H", message, 2)
        while (tag := message[at]) != _END:
            at += 1
            if tag < 0x10:  # the next group
                continue
            said, at = _piece(message, at)
            # A value without a name is a further one of the same attribute.
            name = said.decode("utf-8", "replace") or name
            value, at = _piece(message, at)
            is_number = tag in (_INTEGER, _ENUM)
            shown = int.from_bytes(value, signed=True) if is_number else value.decode("utf-8", "replace")
            found.setdefault(name, []).append(shown)
    except (struct.error, IndexError):
        raise InvalidMessage("the printer's answer is no IPP") from None
    return status, found


def _piece(message: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">H", message, at)
    return message[at + 2 : at + 2 + length], at + 2 + length


def _texts(found: Attributes, name: str) -> list[str]:
    return [each for each in found.get(name, ()) if isinstance(each, str)]


def _pdf(text: str) -> bytes:
    """Write a text as PDF, which more printers take than plain text."""
    cut = [
        [line[at : at + _COLUMNS] for at in range(0, len(line) or 1, _COLUMNS)] for line in text.splitlines()
    ]
    lines = [_ESCAPED.sub(rb"\\\g<0>", line.encode("cp1252", "replace")) for each in cut for line in each]
    pages = [lines[at : at + _ROWS] for at in range(0, len(lines), _ROWS)]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Courier/Encoding/WinAnsiEncoding>>",
    ]
    for page in pages:
        stream = b"BT /F 10 Tf 12 TL 28 800 Td\n" + b"".join(b"(%s) '\n" % line for line in page) + b"ET"
        resources = "/MediaBox[0 0 595 842]/Resources<</Font<</F 3 0 R>>>>"
        contents = f"{len(objects) + 2} 0 R"
        objects.append(f"<</Type/Page/Parent 2 0 R{resources}/Contents {contents}>>".encode())
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
    made, places = bytearray(b"%PDF-1.4\n"), []
    for number, each in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    trailer = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (size, len(made))
    return bytes(made) + b"xref\n0 %d\n0000000000 65535 f \n" % size + table + trailer
