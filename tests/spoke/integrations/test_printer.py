"""A printer that speaks IPP (RFC 8010), as printers in a network do."""

import struct

import pytest

from contracts.errors import CallError
from tests.spoke.integrations.conftest import Answer, Request

TYPES = {"text": 0x41, "name": 0x42, "keyword": 0x44, "mime": 0x49}


def attribute(tag: int, name: str, *values: str | int) -> bytes:
    made = b""
    for number, value in enumerate(values):
        shown = struct.pack(">i", value) if isinstance(value, int) else value.encode()
        said = name.encode() if number == 0 else b""
        made += struct.pack(f">BH{len(said)}sH", tag, len(said), said, len(shown)) + shown
    return made


class Printer:
    """Answers two operations, and keeps the documents it gets."""

    def __init__(self, *formats: str, status: int = 0) -> None:
        self.formats, self.status = formats, status
        self.printed: list[tuple[bytes, bytes]] = []

    def __call__(self, request: Request) -> Answer:
        assert request.headers["content-type"] == "application/ipp"
        _, operation, number = struct.unpack_from(">HHi", request.body)
        head = (
            struct.pack(">HHi", 0x0101, self.status, number)
            + b"\x01"
            + attribute(0x47, "attributes-charset", "utf-8")
        )
        if operation == 0x0002:
            fields, _, document = request.body.partition(
                b"\x03%PDF" if b"\x03%PDF" in request.body else b"\x03"
            )
            self.printed.append((fields, document))
            return 200, "application/ipp", head + b"\x02" + attribute(0x21, "job-id", 7) + b"\x03"
        body = b"\x04" + attribute(TYPES["text"], "printer-info", "Büro")
        body += attribute(0x23, "printer-state", 5)
        body += attribute(TYPES["keyword"], "printer-state-reasons", "media-empty-error", "toner-low-warning")
        body += attribute(0x21, "queued-job-count", 2)
        body += attribute(TYPES["name"], "marker-names", "Black", "Waste")
        body += attribute(0x21, "marker-levels", 12, -2)
        body += attribute(TYPES["mime"], "document-format-supported", *self.formats)
        return 200, "application/ipp", head + body + b"\x03"


async def test_the_state_of_a_printer_is_told(opened, web):
    web.answer = Printer("application/pdf")
    async with opened("printer", printer=web.url.replace("http", "ipp") + "/ipp/print") as printer:
        assert await printer.call("status") == {
            "name": "Büro",
            "state": "stopped",
            "problems": ["media-empty-error", "toner-low-warning"],
            "waiting": 2,
            "supplies": {"Black": 12},
        }
        said = await printer.answer("ist der Drucker bereit", "de")
        assert said == "Büro: angehalten, media-empty-error und toner-low-warning. Black: 12 %."
        assert web.asked[-1].path == "/ipp/print"


async def test_text_is_printed_as_the_printer_takes_it(opened, web):
    printer_there = web.answer = Printer("application/octet-stream", "application/pdf")
    async with opened("printer", printer=web.url.replace("http", "ipp") + "/") as printer:
        await printer.call("print_text", text="Milk (2)\nButter\nKäse\n" + "x" * 200 + "\n" * 70, copies=2)
        ((fields, document),) = printer_there.printed
        assert attribute(0x21, "copies", 2) in fields
        assert attribute(TYPES["mime"], "document-format", "application/pdf") in fields
        assert b"(Milk \\(2\\)) '" in document
        assert "(Käse) '".encode("cp1252") in document
        assert document.count(b"/Type/Page/") == 2
        plain = web.answer = Printer("text/plain")
        assert await printer.answer("drucke den Text Käse", "de") == "Es wird gedruckt."
        assert plain.printed[0][1].decode() == "Käse"
        web.answer = Printer(status=0x0507)
        with pytest.raises(CallError, match="IPP status 0x0507"):
            await printer.call("status")
        for nonsense in (b"", b"<p>No printer", b"\x01\x01\x00\x00\x00\x00\x00\x01\x04\x41\xff\xff"):
            web.answer = lambda request, nonsense=nonsense: (200, "text/html", nonsense)
            with pytest.raises(CallError, match="no IPP"):
                await printer.call("status")
