"""A Mosquitto with dynamic security that stands in a house already, with clients of its own."""

import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from broker.mosquitto.installation import find_installation
from identity.certificates import Authority
from tests.e2e.house import PATIENCE_S, wait_for
from tests.mosquitto import retained_topics
from tests.ports import free_port

ADMIN_PASSWORD = "the password of their administrator"
ZIGBEE_PASSWORD = "the password of their zigbee bridge"


@dataclass
class Secured:
    """One broker that can be killed and started again on the same port; a context manager.

    Attributes:
        tls_port: Where it listens with TLS, too; 0 for nowhere.
    """

    directory: Path
    port: int = 0
    tls_port: int = 0

    def __enter__(self) -> Self:
        self.port = free_port()
        self.directory.mkdir(parents=True)
        self.tell("init", str(self.directory / "dynsec.json"), "admin", ADMIN_PASSWORD, log_in=False)
        installed = find_installation()
        (self.directory / "mosquitto.conf").write_text(
            f"user {psutil.Process().username()}\nlistener {self.port} 127.0.0.1\nallow_anonymous false\n"
            f"plugin {installed.plugin}\nplugin_opt_config_file {self.directory}/dynsec.json\n"
            f"persistence true\npersistence_location {self.directory}/\nset_tcp_nodelay true\n"
        )
        if self.tls_port:
            made = Authority.load_or_create(self.certs).issue(("localhost",), (), directory=self.certs)
            with (self.directory / "mosquitto.conf").open("a") as config:
                config.write(f"listener {self.tls_port} 127.0.0.1\n")
                config.write(f"certfile {made.certificate}\nkeyfile {made.key}\n")
        self._command = [str(installed.binary), "-c", str(self.directory / "mosquitto.conf")]
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of its latest process."""
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """How its latest process ended; None while it runs."""
        return self._process.poll()

    @property
    def certs(self) -> Path:
        """Where its own certificate authority is."""
        return self.directory / "certs"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.begin()
        wait_for(self._listens, what="Mosquitto")

    def begin(self) -> None:
        """Start it and go on at once."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def log(self) -> str:
        """The end of what it has said."""
        return (self.directory / "log").read_text(errors="replace")[-4000:]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it; after SIGTERM it writes down what is retained."""
        self._process.send_signal(number)
        self._process.wait(timeout=PATIENCE_S)

    def forget(self) -> None:
        """Lose everything that is retained, as a broker without persistence does."""
        self.stop()
        (self.directory / "mosquitto.db").unlink()
        self.start()

    def add_zigbee(self) -> None:
        """Make the client that this house lives from, and forbid everybody else everything."""
        self.tell("createRole", "zigbee")
        for kind in ("publishClientSend", "publishClientReceive", "subscribePattern"):
            self.tell("addRoleACL", "zigbee", kind, "zigbee2mqtt/#", "allow", "5")
        self.tell("createClient", "zigbee", "-p", ZIGBEE_PASSWORD)
        self.tell("addClientRole", "zigbee", "zigbee", "5")
        for kind in ("publishClientSend", "subscribe"):
            self.tell("setDefaultACLAccess", kind, "deny")

    def retained(self, username: str, password: str, filter_: str) -> list[str]:
        """The topics with a retained message, as a client sees them."""
        return retained_topics(self.port, username, password, filter_)

    def zigbee_works(self) -> bool:
        """Whether the client that was there before hears itself."""
        login = ("-p", str(self.port), "-u", "zigbee", "-P", ZIGBEE_PASSWORD)
        topic = "zigbee2mqtt/lamp"
        retained = ("-t", topic, "-m", f"on at {time.monotonic()}", "-r", "-q", "1")
        subprocess.run(["mosquitto_pub", *login, *retained], check=True, timeout=PATIENCE_S)
        heard = subprocess.run(
            ["mosquitto_sub", *login, "-t", "zigbee2mqtt/#", "-C", "1", "-W", f"{PATIENCE_S:.0f}"],
            capture_output=True,
            text=True,
            check=False,
        )
        return heard.stdout.strip() == retained[3]

    def tell(self, *words: str, log_in: bool = True) -> None:
        """Change who may do what, as its administrator would by hand."""
        login = ("-p", str(self.port), "-u", "admin", "-P", ADMIN_PASSWORD) if log_in else ()
        program = shutil.which("mosquitto_ctrl")
        assert program is not None
        done = subprocess.run(
            [program, *login, "dynsec", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr + done.stdout

    def _listens(self) -> bool:
        return subprocess.run(
            ["mosquitto_pub", "-p", str(self.port), "-u", "admin", "-P", ADMIN_PASSWORD, "-t", "x", "-n"],
            capture_output=True,
            check=False,
        ).returncode in (0, 5)
