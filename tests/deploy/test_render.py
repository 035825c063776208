"""``strawberry render``: what it prints is what the other programs take."""

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from broker.emqx import ACL_CLAIM
from deploy.cli.commands import make_parser
from deploy.cli.main import main
from deploy.directory import Home
from deploy.home.brokers.processes import load_identity
from deploy.rendering.rendering import render_kubernetes
from identity import tokens

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
