"""`strawberry doctor --support`: a bundle for others, with nothing of the home's secrets in it."""

import json
import os
import zipfile
from pathlib import Path

from deploy.directory import Home
from identity.files import write_private
from tests.deploy.strawberry import environment_of, run

_JOURNAL = """#!/bin/sh
echo "asked with Bearer bearer-secret-1 and log-secret-value, http://me:url-secret-1@host/"
echo "mcp-secret-2 of http://y/sse?any=mcp-secret-3%20x 'mcp-secret-3 x', Authorization: Basic mcp-secret-4"
echo "asked at http://models.local:9000/v1?key=url-secret-3; nothing sent to topic notify-secret-2"
echo "pasted-secret-1 is not set"
echo "model asked at {{\\"key\\": \\"dotenv-secret-1\\"}}"
"""

_SERVERS = {
    "x": {"command": "x", "env": {"ANY": "mcp-secret-1"}, "args": ["--password=mcp-secret-2"]},
    "y": {"url": "http://y/sse?any=mcp-secret-3%20x", "headers": {"Any": "Basic mcp-secret-4"}},
}


def _secret_home(home: Path) -> None:
    """Make a home with a secret in every place that has them."""
    write_private(home / ".env", b"OPENAI_API_KEY=dotenv-secret-1\nexport BROKER='dotenv \"secret\" 2'\n")
    (home / "strawberry.toml").write_text(
        """
        [[models]]
        name = "house"
        provider = "openai"
        model = "some-model"
        base_url = "http://me:url-secret-2@models.local:9000/v1?key=url-secret-3"
        api_key_env = "pasted-secret-1"
        [broker]
        url = "mqtts://host"
        password_env = "BROKER_PASSWORD"
        [household]
        rules = ["private-rule-text"]
        latitude = 52.123456
        [notifications]
        urls = ["ntfy://notify-secret-1", "json://host/notify-secret-2"]
        """
    )
    for name, content in {
        "hub/cli.token": "token-secret-1",
        "hub/key.pem": "-----BEGIN PRIVATE KEY-----\npem-secret-line-1\n",
        "spoke/http.token": "token-secret-2",
        "spoke/enrolment.json": json.dumps({"device": "pc", "token": "enrolment-secret-1"}),
        "broker/run.json": json.dumps({"kind": "embedded", "logins": [{"password": "broker-secret-1"}]}),
        "mcp.json": json.dumps({"mcpServers": _SERVERS}),
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content)
    # Where one secret is, it may also stand where texts are shown.
    (home / "hub" / "SOUL.md").write_text("soul-secret-1")


def test_no_secret_of_a_home_gets_into_the_bundle(tmp_path: Path) -> None:
    home, programs, file = tmp_path / "home", tmp_path / "bin", tmp_path / "report.zip"
    home.mkdir()
    _secret_home(home)
    tmp_path.chmod(0o755)
    (home / "hub" / "token-secret-1").touch()
    programs.mkdir()
    (programs / "journalctl").write_text(_JOURNAL.replace("{{", "{").replace("}}", "}"))
    (programs / "journalctl").chmod(0o755)
    environment = environment_of(
        home, PATH=f"{programs}:{os.environ['PATH']}", MY_SERVICE_PASSWORD="log-secret-value"
    )
    done = run(environment, "doctor", "--support", str(file))
    assert "is written, for you alone" in done.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    with zipfile.ZipFile(file) as bundle:
        texts = {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert set(texts) == {"versions.json", "doctor.json", "settings.json", "files.txt", "log.txt"}
    whole = "\n".join(texts.values())
    assert "secret-" not in whole
    assert "private-rule-text" not in whole
    assert "52.123456" not in whole
    assert '\\"secret\\" 2' not in whole
    # What helps is there.
    assert json.loads(texts["versions.json"])["strawberry"] == "0.1.0"
    assert "http://models.local:9000" in texts["settings.json"]
    assert "BROKER_PASSWORD" in texts["settings.json"]
    assert json.loads(texts["settings.json"])[".env"] == ["BROKER", "OPENAI_API_KEY"]
    assert "asked with Bearer [secret]" in texts["log.txt"]
    assert Home(home).token_file.name in texts["files.txt"]

    settings, again = home / "strawberry.toml", tmp_path / "again.zip"
    settings.write_text(settings.read_text().replace('"pasted-secret-1"', "pasted-secret-1"))
    assert "is written" in run(environment, "doctor", "--support", str(again)).stderr
    with zipfile.ZipFile(again) as bundle:
        assert json.loads(bundle.read("settings.json"))["strawberry.toml"].keys() == {"problem"}
        assert "secret-" not in "".join(bundle.read(name).decode() for name in bundle.namelist())


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.zip").write_text("mine")
    done = run(environment_of(tmp_path / "home"), "doctor", "--support", str(tmp_path / "mine.zip"))
    assert (done.returncode, (tmp_path / "mine.zip").read_text()) == (1, "mine")
    assert "already a file" in done.stderr
