"""A microcontroller on a serial port: what it writes becomes values on the bus, and it can be written to."""

import importlib.util
import math
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, Field

from contracts.errors import InvalidMessage, LinkError
from contracts.rates import Backoff
from strawberry_skills import Skill, skill_method

if TYPE_CHECKING:
    from serial import Serial

_PORTS: Final = ("serial/by-id/*", "ttyUSB*", "ttyACM*")
_VALUE: Final = re.compile(r"([A-Za-z0-9_.-]{1,32})\s*[=:]\s*(\S.{0,99})")
_LONGEST: Final = 200
"""Characters of a line; what a device on a cable writes is no more trusted than any other's text."""
_READ_S: Final = 0.5
_AGAIN_S: Final = (1.0, 60.0)


class SerialSkill(Skill):
    """A microcontroller on a serial port, for example an Arduino.

    A line ``name=value`` becomes a value on the bus, any other line an event.
    """

    labels = {"de": {"SerialSkill": "Serielles Gerät"}, "en": {"SerialSkill": "Serial device"}}

    class Settings(BaseModel):
        """Which port, and how fast; without a port, the first one that is there."""

        port: Annotated[str, Field(pattern=r"^(/dev/[\w./:-]+)?$")] = ""
        baud: Annotated[int, Field(ge=300, le=4_000_000)] = 115_200

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._port: Serial | None = None
        self._reader = threading.Thread(target=self._read, name="serial", daemon=True)

    @classmethod
    def can_run(cls) -> bool:
        return bool(_ports()) and importlib.util.find_spec("serial") is not None

    async def setup(self) -> None:
        self._reader.start()

    async def close(self) -> None:
        self._ended.set()
        with self._lock:
            if self._port is not None:
                self._port.cancel_read()

    @skill_method(read_only=True)
    def port(self) -> str:
        """Return the port that is open; empty while there is none."""
        with self._lock:
            return str(self._port.port) if self._port is not None else ""

    @skill_method()
    def send(self, line: str) -> None:
        """Write a line to the microcontroller.

        Args:
            line: Printable text, at most 200 characters, without a line end.
        """
        if not line.isprintable() or len(line) > _LONGEST:
            raise InvalidMessage("a line is printable text of at most {most} characters", most=_LONGEST)
        with self._lock:
            if self._port is None:
                raise LinkError("the serial port is not open", hint="Look whether the cable is plugged in.")
            self._port.write(f"{line}\n".encode())

    def _read(self) -> None:
        from serial import Serial, SerialException

        backoff, told = Backoff(*_AGAIN_S), ""
        while not self._ended.is_set():
            name = self.settings.port or next(iter(_ports()), "")
            try:
                with Serial(name, self.settings.baud, timeout=_READ_S, write_timeout=_READ_S) as port:
                    self._hold(port)
                    backoff.reset()
                    line = b""
                    while not self._ended.is_set():
                        # Where the wait is over in the middle of a line, the rest comes with the next read.
                        line += port.read_until(size=_LONGEST - len(line))
                        if line.endswith(b"\n") or len(line) >= _LONGEST:
                            self._take(line)
                            line = b""
            except (SerialException, OSError, ValueError) as error:
                if str(error) != told:
                    self.log.warning("serial port %s: %s", name, told := str(error))
            finally:
                self._hold(None)
            self._ended.wait(backoff.next())

    def _hold(self, port: "Serial | None") -> None:
        with self._lock:
            self._port = port
        self.state("connected", port is not None)

    def _take(self, raw: bytes) -> None:
        line = raw.decode("utf-8", "replace").strip()
        if not line or not line.isprintable():
            return
        if (found := _VALUE.fullmatch(line)) is not None:
            name, text = found.groups()
            self.state(name, _number(text))
        else:
            self.emit("line", {"text": line})


def _number(text: str) -> float | str:
    """Return a number, or the text where it is none that JSON can hold, such as ``nan``."""
    with suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    return text


def _ports() -> list[str]:
    return [str(path) for pattern in _PORTS for path in sorted(Path("/dev").glob(pattern))]
