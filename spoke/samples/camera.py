"""A camera: pictures through the programs that Raspberry Pi OS and Debian have for it."""

import asyncio
import shutil
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, Field

from bus.processes import open_process
from contracts.errors import ConfigError
from strawberry_skills import Skill, Unit, skill_method

_PROGRAMS: Final = {
    "rpicam-jpeg": ("--nopreview", "--timeout", "1000", "--camera", "{camera}", "--output", "{file}"),
    "libcamera-jpeg": ("--nopreview", "--timeout", "1000", "--camera", "{camera}", "--output", "{file}"),
    "fswebcam": ("--quiet", "--no-banner", "--device", "/dev/video{camera}", "{file}"),
    "ffmpeg": ("-v", "error", "-f", "v4l2", "-i", "/dev/video{camera}", "-frames:v", "1", "{file}"),
}
"""In the order in which they are tried: those of the Pi's own camera first."""
_PICTURE_S: Final = 30


@dataclass
class Picture:
    """A picture on this device."""

    file: str
    taken_at: datetime
    size: Annotated[int, Unit("B")]


class CameraSkill(Skill):
    """Takes pictures with the camera of this computer; they stay on it."""

    labels = {"de": {"CameraSkill": "Kamera", "list_pictures": "Bilder"}, "en": {"list_pictures": "Pictures"}}

    concurrency = 1

    class Settings(BaseModel):
        """Which camera, and how many pictures are kept."""

        camera: Annotated[int, Field(ge=0, le=63)] = 0
        keep: Annotated[int, Field(ge=1, le=10_000)] = 100

    @classmethod
    def can_run(cls) -> bool:
        return any(Path("/dev").glob("video*")) and any(map(shutil.which, _PROGRAMS))

    @skill_method(
        timeout_s=60,
        sentences={"en": ["take a picture"], "de": ["(mach|mache) ein (Foto|Bild)"]},
        responses={"en": "Taken.", "de": "Aufgenommen."},
    )
    async def take_picture(self) -> Picture:
        """Take a picture and keep it on this device."""
        now = datetime.now().astimezone()
        file = self._folder / f"{now:%Y%m%d-%H%M%S-%f}.jpg"
        program = next(filter(shutil.which, _PROGRAMS), None)
        if program is None:
            raise ConfigError("no program takes pictures here", hint="On Debian: apt install fswebcam.")
        words = [each.format(camera=self.settings.camera, file=file) for each in _PROGRAMS[program]]
        async with asyncio.timeout(_PICTURE_S), open_process((program, *words), stderr=PIPE) as process:
            _, said = await process.communicate()
        if process.returncode != 0 or not file.exists():
            reason = said.decode("utf-8", "replace").strip().splitlines()
            why = reason[-1][:200] if reason else str(process.returncode)
            raise ConfigError("{program} took no picture: {reason}", program=program, reason=why)
        file.chmod(0o600)
        for old in self._files()[self.settings.keep :]:
            old.unlink(missing_ok=True)
        picture = _picture(file)
        self.emit("picture_taken", {"file": picture.file})
        return picture

    @skill_method(read_only=True)
    def list_pictures(self) -> list[Picture]:
        """List the last 20 pictures, the newest first."""
        return [_picture(file) for file in self._files()[:20]]

    @property
    def _folder(self) -> Path:
        folder = self.data_dir / "pictures"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.jpg"), reverse=True)


def _picture(file: Path) -> Picture:
    taken = datetime.strptime(file.stem, "%Y%m%d-%H%M%S-%f").astimezone()
    return Picture(str(file), taken, file.stat().st_size)
