"""Whom the command line talks to: the spoke of this machine, or else its hub."""

import argparse
import json
import os
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from contracts.errors import ConfigError, Unauthorized
from deploy.cli.client import HubClient, find_nearest, is_local_spoke
from deploy.directory import Home
from identity.files import only_one
from identity.keys import KeyPair
from tests.ports import free_port
from tests.proofs import ProvingHandler, serving


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """One whose hub runs in this process."""
    monkeypatch.delenv("STRAWBERRY_TOKEN", raising=False)
    found = Home(tmp_path)
    with only_one(found.hub, what="a hub", hint=""):
        found.address_file.write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": os.getpid()}))
        found.token_file.write_text("the owner's")
        yield found


@pytest.fixture
def spoke(home: Home) -> Iterator[str]:
    """Something that answers where the spoke of this home said that it is."""

    class Handler(ProvingHandler, BaseHTTPRequestHandler):
        owner_token = "of this start"

        def do_GET(self) -> None:
            self.reply({})

    with serving(Handler) as url:
        say_where(home, url)
        with only_one(home.spoke, what="a spoke", hint=""):
            yield url


def say_where(home: Home, url: str) -> None:
    home.spoke.mkdir()
    home.spoke_address_file.write_text(json.dumps({"url": url, "pid": os.getpid(), "device": "garage_pc"}))
    home.spoke_token_file.write_text("of this start")


def test_the_spoke_of_this_machine_is_nearer_than_its_hub(home: Home, spoke: str) -> None:
    assert find_nearest(home).url == spoke


def test_only_the_spoke_that_up_runs_is_one_that_invites_itself(
    home: Home, spoke: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRAWBERRY_HOME", str(home.directory))
    home.enrolment_file.write_text(json.dumps({"device": "garage_pc"}))
    options = argparse.Namespace(hub=None)
    assert not is_local_spoke(options, "garage_pc")
    home.address_file.write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": os.getppid()}))
    assert is_local_spoke(options, "garage_pc")
    assert not is_local_spoke(options, "tv")


def test_a_spoke_that_was_killed_is_passed_by_whoever_has_its_port_now(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        say_where(home, f"http://127.0.0.1:{stranger.getsockname()[1]}")
        assert find_nearest(home).url == "http://127.0.0.1:1"
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.accept()


def test_a_spoke_that_does_not_answer_keeps_nobody_from_the_hub(home: Home) -> None:
    say_where(home, f"http://127.0.0.1:{free_port()}")
    with only_one(home.spoke, what="a spoke", hint=""):
        assert find_nearest(home).url == "http://127.0.0.1:1"


def test_a_spoke_that_does_not_answer_at_once_is_waited_for_where_there_is_no_hub(home: Home) -> None:
    home.address_file.unlink()
    url = f"http://127.0.0.1:{free_port()}"
    say_where(home, url)
    with only_one(home.spoke, what="a spoke", hint=""):
        assert find_nearest(home).url == url


def test_who_brings_a_token_of_their_own_is_not_the_owner_of_the_spoke(
    home: Home, spoke: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRAWBERRY_TOKEN", "a guest's")
    assert find_nearest(home).url == "http://127.0.0.1:1"


def test_where_neither_runs_the_person_is_told(home: Home) -> None:
    home.address_file.unlink()
    with pytest.raises(ConfigError, match="no hub is running") as caught:
        find_nearest(home)
    assert "strawberry up" in caught.value.hint


def test_where_the_hub_is_another_machine_nobody_is_told_to_start_one_here(home: Home) -> None:
    home.address_file.unlink()
    home.spoke.mkdir()
    home.enrolment_file.write_text("{}")
    with pytest.raises(ConfigError, match="no hub is running") as caught:
        find_nearest(home)
    assert "strawberry spoke run" in caught.value.hint
    assert "strawberry up" not in caught.value.hint


def test_a_program_on_the_port_of_a_hub_or_spoke_is_sent_no_token(home: Home, spoke: str) -> None:
    heard: list[str] = []

    class Eavesdropper(ProvingHandler, BaseHTTPRequestHandler):
        """Proves to be another hub, and notes what it is sent."""

        def do_GET(self) -> None:
            heard.append(str(self.headers["authorization"]))

    home.spoke_token_file.write_text("of another start")
    assert find_nearest(home).url == "http://127.0.0.1:1"
    genuine = ProvingHandler.token(by=KeyPair.generate())
    with serving(Eavesdropper) as url:
        for client in (HubClient(url, token=genuine), HubClient(url, token="of a spoke", server="spoke")):
            with pytest.raises(Unauthorized, match="does not prove"):
                client.request("GET", "/api/health")
    assert heard == []
