"""A plain Mosquitto on loopback, as a child process."""

import getpass
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from identity.certificates import ServerCertificate
from tests.ports import free_port

HINT = "Mosquitto is not installed: apt-get install mosquitto"

_LAST = "$SYS/broker/version"


def find_mosquitto() -> str | None:
    """Give the path of the binary, which Debian keeps out of an ordinary user's PATH."""
    return shutil.which(
        "mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin"
    )


def retained_topics(port: int, username: str, password: str, filter_: str) -> list[str]:
    """The topics with a retained message on a Mosquitto of this machine, as one of its clients sees them."""
    # A broker answers subscriptions in their order, and its version is always retained.
    words = ["-p", str(port), "-u", username, "-P", password, "-t", filter_, "-t", _LAST]
    topics: list[str] = []
    with subprocess.Popen(
        ["mosquitto_sub", *words, "--retained-only", "-F", "%t", "-W", "60"],
        stdout=subprocess.PIPE,
        text=True,
    ) as seeing:
        assert seeing.stdout is not None
        for line in seeing.stdout:
            topic = line.rstrip("\n")
            if topic == _LAST:
                seeing.terminate()
                return topics
            topics.append(topic)
    raise AssertionError(f"the broker did not show what it retains to {username}")


class Mosquitto:
    """One broker that can be killed and started again on the same port."""

    def __init__(
        self,
        directory: Path,
        *,
        password_file: Path | None = None,
        certificate: ServerCertificate | None = None,
        in_flight: int = 0,
        queued: int = 0,
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self._password_file = password_file
        self._queues = f"max_inflight_messages {in_flight}\nmax_queued_messages {queued}\n"
        self._certificate = certificate
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt{'s' if self._certificate else ''}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        binary = find_mosquitto()
        assert binary is not None, HINT
        config = self.directory / "mosquitto.conf"
        login = (
            f"allow_anonymous false\npassword_file {self._password_file}"
            if self._password_file
            else "allow_anonymous true"
        )
        if self._certificate is not None:
            login += f"\ncertfile {self._certificate.certificate}\nkeyfile {self._certificate.key}"
        # As root it would become the user mosquitto, who may not enter a test's directory.
        config.write_text(
            f"user {getpass.getuser()}\nlistener {self.port} 127.0.0.1\n{login}\n"
            f"persistence false\nset_tcp_nodelay true\n{self._queues}"
            "max_packet_size 1048576\nlog_dest none\n"
        )
        self._process = subprocess.Popen([binary, "-c", str(config)])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                time.sleep(0.005)
        self.kill()
        raise AssertionError(f"Mosquitto did not start (code {self._process.returncode})")

    def kill(self) -> None:
        """SIGKILL: no client gets a word."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it, whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(timeout=120)
