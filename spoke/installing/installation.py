"""Installation, update and removal of skills of others in a data directory."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from contracts.answers.skills import InstalledAnswer
from contracts.errors import Conflict, InvalidMessage, NotFound
from contracts.wire import shown_digest
from identity.files import make_private_directory, write_private
from spoke import limits
from spoke.installing.installed import Installed, Manifest, changes, describe, digest_of
from spoke.installing.sources import fetch, newest
from spoke.isolation.environment import Environment, Lock

_UPLOADED: Final = "upload:"
"""Begins the source of a skill whose archive was uploaded; its name follows."""


@dataclass(frozen=True)
class Fetched:
    """A skill with its packages' versions, before it is installed; nothing of it has run.

    Attributes:
        before: The installed version; None for a new one.
        target: The folder that it gets.
    """

    manifest: Manifest
    before: Manifest | None
    target: Path
    _lock: Lock | None
    _environment: Environment
    _staging: Path
    _record: Installed

    @property
    def changes(self) -> list[str]:
        return list(changes(self.before, self.manifest))

    @property
    def overwrites(self) -> bool:
        """Return whether installing loses changes to the installed files."""
        before = self.before
        return before is not None and self.target.is_dir() and digest_of(self.target) != before.digest

    @property
    def digest(self) -> str:
        return shown_digest([self.manifest.digest, self._lock.text if self._lock is not None else ""])

    def install(self) -> None:
        """Install the packages, and move the skill to its place.

        Raises:
            Conflict: Another version was installed meanwhile.
            ConfigError: Another installation runs, or the packages cannot be installed.
        """
        name = self.manifest.name
        with self._record.alone():
            is_taken = self.before is None and self.target.exists()
            if is_taken or self._record.all().get(name) != self.before:
                raise changed(name)
            if self._lock is not None:
                self._environment.install(self._lock)
            old = self._staging / "old"
            if self.target.exists():
                self.target.rename(old)
            try:
                (self._staging / "new" / name).rename(self.target)
            except OSError:
                if old.exists():
                    old.rename(self.target)
                raise
            self._record.put(name, self.manifest)


def changed(name: str) -> Conflict:
    return Conflict("{name} has changed since it was shown", name=name, hint="Look at it again.")


class Installation:
    """The skills of others on this machine.

    Args:
        home: The data directory.
    """

    def __init__(self, home: Path) -> None:
        self._skills = home / "skills"
        self._environments = home / "spoke" / "environments"
        self._uploads = home / "spoke" / "uploads"
        self._record = Installed(home / "spoke")

    def list(self) -> list[InstalledAnswer]:
        """Return the installed skills, and whether their files were changed since."""
        answers = []
        for name, each in self._record.all().items():
            folder = self._skills / name
            state: Literal["", "changed", "missing"] = "missing"
            if folder.is_dir():
                state = "" if digest_of(folder) == each.digest else "changed"
            answers.append(InstalledAnswer(name=name, version=each.version, source=each.source, state=state))
        return answers

    def find(self, name: str) -> Manifest:
        """Return an installed skill.

        Raises:
            NotFound: It is not installed.
        """
        if (found := self._record.all().get(name)) is None:
            hint = "'strawberry skills list --installed' shows those that are."
            raise NotFound("{name!r} is no installed skill", name=name, hint=hint)
        return found

    @contextmanager
    def fetched(self, source: str, *, wanted: str = "", builds: bool = False) -> Iterator[Fetched]:
        """Fetch a skill, and choose its packages' versions, without running anything of it.

        Args:
            wanted: The name that it must have.
            builds: Whether packages without a wheel are allowed.

        Raises:
            ConfigError: It cannot be had, or is no skill.
            Conflict: It is another skill, or its name is taken.
        """
        self._skills.mkdir(exist_ok=True)
        # Beside its place, so that it is moved there at once; what begins with a dot is not loaded.
        with tempfile.TemporaryDirectory(prefix=".install-", dir=self._skills) as staging:
            place = source
            if source.startswith(_UPLOADED):
                place = str(self._upload(source.removeprefix(_UPLOADED)))
            elif not source.startswith("git+"):
                place = source = str(Path(source).absolute())
            files = fetch(place, Path(staging, "files"))
            manifest = describe(files, name=Path(place).name.partition(".")[0])
            name = manifest.name
            before = self._record.all().get(name)
            if wanted not in ("", name):
                raise Conflict("{source} is the skill {name}", source=source, name=name)
            if before is None and (self._skills / name).exists():
                raise Conflict("there is a skill {name} of your own", name=name, hint="Move it away first.")
            new = Path(staging, "new")
            new.mkdir()
            environment = Environment(files.rename(new / name), self._environments)
            lock = environment.resolve(builds=builds) if environment.requirements else None
            packages = lock.packages if lock is not None else ()
            manifest = manifest.model_copy(update={"source": source, "packages": packages})
            target = self._skills / name
            yield Fetched(manifest, before, target, lock, environment, Path(staging), self._record)

    @contextmanager
    def update(self, name: str, source: str = "", *, builds: bool = False) -> Iterator[Fetched]:
        """Fetch an installed skill again, the newest commit of a git repository, or from another source.

        Args:
            name: Of the skill, or the source of an archive that was uploaded.

        Raises:
            StrawberryError: As `find` and `fetched` say.
        """
        wanted = "" if name.startswith(_UPLOADED) else name
        source = source or (newest(self.find(name).source) if wanted else name)
        with self.fetched(source, wanted=wanted, builds=builds) as found:
            yield found

    def remove(self, name: str) -> None:
        """Remove an installed skill with its packages; its data and settings are kept.

        Raises:
            NotFound: It is not installed.
        """
        with self._record.alone():
            self.find(name)
            shutil.rmtree(self._skills / name, ignore_errors=True)
            Environment(self._skills / name, self._environments).remove()
            self._record.put(name, None)

    @property
    def takes_uploads(self) -> bool:
        return self._uploads.is_dir()

    @property
    def uploaded(self) -> str:
        return next((_UPLOADED + each.name for each in self._uploads.glob("*")), "")

    def allow_uploads(self, allowed: bool) -> None:
        """Set whether archives may be uploaded; only a person on this machine may."""
        if allowed:
            make_private_directory(self._uploads)
        elif self.takes_uploads:
            shutil.rmtree(self._uploads)

    def add_upload(self, file: str, at: int, piece: bytes) -> None:
        """Add a piece to the archive that is uploaded; the first one starts over.

        Raises:
            Conflict: This device takes none, or the piece is not the next one.
            InvalidMessage: The name or the size is not allowed.
        """
        path = self._upload(file)
        if at == 0:
            for each in self._uploads.iterdir():
                each.unlink()
        content = path.read_bytes() if path.exists() else b""
        if at != len(content):
            size = len(content)
            raise Conflict("the upload has {size} bytes, so the next piece is not at {at}", size=size, at=at)
        if at + len(piece) > limits.UPLOADED_BYTES:
            most = limits.UPLOADED_BYTES // 2**20
            raise InvalidMessage("an archive may have {most} MiB", most=most)
        write_private(path, content + piece)

    def _upload(self, file: str) -> Path:
        if not self.takes_uploads:
            raise Conflict(
                "this device takes no uploads",
                hint="Allow them in the menu of its Strawberry icon. Or run: strawberry skills uploads on",
            )
        if not file or file[0] == "." or not all(each.isalnum() or each in "._-" for each in file):
            raise InvalidMessage(
                "{name!r} cannot be the name of an archive",
                name=file,
                hint="Use letters, digits, dots and dashes.",
            )
        return self._uploads / file
