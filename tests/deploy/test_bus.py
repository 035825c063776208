"""How the hub uses a broker is settled from files and from who was asked for, before anything is sent."""

import subprocess
import sys
from pathlib import Path

import pytest

from bus.ports import listen
from contracts.devices.joining import Login
from contracts.errors import ConfigError
from deploy.directory import Home
from deploy.home.brokers.bus import choose_bus, choose_home_link
from deploy.home.brokers.registry import OurBroker, announced, keep_provisioned
from hub_agent.settings import BusKind, BusSettings
from identity.certificates import own_names
from identity.files import only_one

BUS = BusSettings(url="mqtt://127.0.0.1:1883", kind="embedded")
NAS = "mqtt://nas.local:1883"
SECURE_NAS = "mqtts://nas.local:8883"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def settings(tmp_path: Path, text: str) -> Home:
    (tmp_path / "strawberry.toml").write_text(text)
    (tmp_path / ".env").write_text("BUS=hush\n")
    return Home(tmp_path)


async def test_a_mosquitto_that_was_set_up_is_ours_and_stays_so_only_while_it_is_known(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    keep_provisioned(home, url=SECURE_NAS, ca="PEM")
    bus = await choose_bus(home, SECURE_NAS, trust=False)
    assert (bus.kind, bus.ca, bus.topic_prefix, bus.login) == ("mosquitto", "PEM", "", None)
    assert bus.is_ours()
    home.provisioned_file.unlink()
    assert not bus.is_ours()


async def test_without_tls_a_mosquitto_elsewhere_is_used_only_where_its_owner_accepted_that(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    keep_provisioned(home, url=NAS, ca=None)
    with pytest.raises(ConfigError, match="on another machine and without TLS") as error:
        await choose_bus(home, NAS, trust=False)
    assert "--insecure" in error.value.hint
    keep_provisioned(home, url=NAS, ca=None, insecure=True)
    assert (await choose_bus(home, NAS, trust=False)).kind == "mosquitto"
    # What does not leave this machine cannot be read in the network.
    own = next((each for each in own_names()[1] if ":" not in each), "127.0.0.1")
    keep_provisioned(home, url=f"mqtt://{own}:1883", ca=None)
    assert (await choose_bus(home, f"mqtt://{own}:1883", trust=False)).kind == "mosquitto"


async def test_the_embedded_broker_is_ours_from_the_moment_it_runs(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with listen("127.0.0.1", 0, purpose="a test") as probe:
        url = f"mqtt://127.0.0.1:{probe.getsockname()[1]}"
    bus = await choose_bus(home, url, trust=False)
    assert bus.kind == "embedded"
    assert not bus.is_ours(), "nobody runs it yet"
    running = OurBroker("embedded", urls=(url,), addresses=("mqtts://192.0.2.1:8883", url))
    with only_one(home.broker, what="a broker", hint=""), announced(home, running):
        assert bus.is_ours()
        assert (await choose_bus(home, url, trust=False)).addresses == running.addresses


async def test_a_trusted_broker_gets_its_ordinary_login_and_a_prefix(tmp_path: Path) -> None:
    (tmp_path / "nas.pem").write_text(CERTIFICATE)
    table = f'[broker]\nurl = "{NAS}"\nusername = "berry"\npassword_env = "BUS"\nca = "nas.pem"\n'
    home = settings(tmp_path, table)
    with pytest.raises(ConfigError, match=r"no broker can be reached at \S+: \w"):
        await choose_bus(home, None, trust=False)
    bus = await choose_bus(home, None, trust=True)
    assert (bus.url, bus.kind, bus.topic_prefix) == (NAS, "shared", "strawberry/")
    assert (bus.login, bus.ca) == (Login(username="berry", password="hush"), CERTIFICATE)
    assert await choose_bus(settings(tmp_path, table + "trust = true\n"), None, trust=False) == bus
    other = await choose_bus(home, "mqtt://other.local", trust=True)
    assert other.login is None, "the login of one broker is not sent to another"
    local = settings(tmp_path, '[broker]\nurl = "mqtt://127.0.0.1:1"\ntrust = true\n')
    assert (await choose_bus(local, "mqtt://localhost:1", trust=False)).kind == "shared"


async def test_emqx_gets_tokens_over_tls_alone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    settings = tmp_path / "strawberry.toml"
    settings.write_text('[broker]\nurl = "mqtts://nas.lan"\nkind = "emqx"\n')
    bus = await choose_bus(home, None, trust=False)
    assert (bus.kind, bus.url, bus.topic_prefix) == ("emqx", "mqtts://nas.lan", "")
    settings.write_text('[broker]\nurl = "mqtt://nas.lan"\nkind = "emqx"\n')
    with pytest.raises(ConfigError, match="without TLS"):
        await choose_bus(home, None, trust=False)
    settings.write_text('[home_broker]\nurl = "bus"\n')
    with pytest.raises(ConfigError, match="one connection of the hub"):
        choose_home_link(home, bus)


async def test_what_was_set_up_is_never_used_as_a_shared_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    keep_provisioned(home, url=NAS, ca=None, insecure=True)
    assert (await choose_bus(home, NAS, trust=True)).kind == "mosquitto"


async def test_devices_are_told_the_addresses_of_the_settings(tmp_path: Path) -> None:
    home = settings(tmp_path, f'[broker]\nurl = "{NAS}"\naddresses = ["mqtts://nas.local:8883"]\n')
    keep_provisioned(home, url=NAS, ca=None, insecure=True)
    assert (await choose_bus(home, None, trust=False)).addresses == ("mqtts://nas.local:8883",)


def test_the_home_broker_is_as_the_settings_say(tmp_path: Path) -> None:
    assert choose_home_link(Home(tmp_path), BUS) is None
    home = settings(tmp_path, f'[home_broker]\nurl = "{NAS}"\nusername = "berry"\npassword_env = "BUS"\n')
    link = choose_home_link(home, BUS)
    assert link is not None
    assert (link.url, link.login, link.ca) == (NAS, Login(username="berry", password="hush"), None)


@pytest.mark.parametrize("kind", ["embedded", "shared"])
def test_the_home_broker_may_be_the_bus(tmp_path: Path, kind: BusKind) -> None:
    bus = BUS.model_copy(update={"kind": kind, "login": Login(username="berry"), "ca": "pem"})
    link = choose_home_link(settings(tmp_path, '[home_broker]\nurl = "bus"\n'), bus)
    assert link is not None
    # On a shared broker it is an ordinary login there, as on any other.
    assert (link.url, link.login, link.ca, link.is_bus) == (bus.url, bus.login, "pem", kind == "embedded")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('password_env = "NOWHERE"\n', "NOWHERE is not set"),
        ('ca = "missing.pem"\n', "cannot read the certificate authority"),
        ('ca = ".env"\n', "holds no certificate"),
    ],
)
def test_what_the_settings_name_and_is_not_there_is_told(tmp_path: Path, table: str, said: str) -> None:
    home = settings(tmp_path, f'[home_broker]\nurl = "{NAS}"\n{table}')
    with pytest.raises(ConfigError, match=said):
        choose_home_link(home, BUS)


async def test_of_the_names_of_this_machine_the_one_counts_where_our_broker_listens(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with listen("127.0.0.1", 0, purpose="a test") as probe:
        port = probe.getsockname()[1]
    ours, others = f"mqtt://127.0.0.1:{port}", (f"mqtt://localhost:{port}", f"mqtt://[::1]:{port}")
    # Somebody else may listen on the same port of ::1, which localhost is, too.
    before = [await choose_bus(home, each, trust=False) for each in others]
    assert [bus.url for bus in before] == [ours, ours]
    running = OurBroker("embedded", urls=(ours,))
    with only_one(home.broker, what="a broker", hint=""), announced(home, running):
        assert all(bus.is_ours() for bus in before)
        for each in others:
            assert (await choose_bus(home, each, trust=False)).url == ours


async def test_a_cluster_of_nats_is_ours_by_the_settings_and_only_with_tls(tmp_path: Path) -> None:
    text = """[broker]
kind = "nats"
url = "mqtts://one.lan:8883"
addresses = ["mqtts://one.lan:8883", "mqtts://two.lan:8883"]
nodes = ["tls://one.lan:4222", "tls://two.lan:4222"]
"""
    home = settings(tmp_path, text)
    bus = await choose_bus(home, "mqtts://two.lan:8883", trust=False)
    assert (bus.kind, bus.nodes[1], bus.addresses[0]) == (
        "nats",
        "tls://two.lan:4222",
        "mqtts://one.lan:8883",
    )
    assert bus.urls == ("mqtts://two.lan:8883", "mqtts://one.lan:8883")
    assert bus.model_copy(update={"url": "mqtts://One.lan"}).urls == bus.addresses
    # One that devices do not know leads to all of them, as the Service of a Kubernetes.
    settings(tmp_path, text.replace('url = "mqtts://one.lan:8883"', 'url = "mqtts://nats:8883"'))
    assert (await choose_bus(home, None, trust=False)).urls == ("mqtts://nats:8883",)
    settings(tmp_path, text.replace("tls://two", "nats://two"))
    with pytest.raises(ConfigError, match="without TLS"):
        await choose_bus(home, None, trust=False)


def test_a_home_without_nats_loads_nothing_of_it() -> None:
    look = "import sys, deploy.home.single_host, deploy.home.local_hub; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert not {"nats", "nkeys", "broker.nats"} & set(done.stdout.split())
