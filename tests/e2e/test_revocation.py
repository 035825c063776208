"""Whoever is shut out is out everywhere at once: on the bus, over HTTP, and in what it has begun."""

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.house import House, Spoke, wait_for
from tests.model_server import ScriptedModel, calls
from tests.mosquitto import HINT, find_mosquitto
from tests.requirements import require


@pytest.fixture(params=["embedded", "mosquitto"])
def lived_in(
    request: pytest.FixtureRequest, tmp_path: Path, sandbox_files: Path, model: ScriptedModel
) -> Iterator[House]:
    """Everything of one home in one process, on a broker of each kind."""
    require(find_mosquitto() is not None, HINT)
    with House(tmp_path / "house", sandbox=sandbox_files) as house:
        house.use_model(model.base_url)
        house.start_up("--broker", request.param, "--no-spoke")
        yield house


class Stream:
    """A chat of a device over HTTP, read until it ends."""

    def __init__(self, house: House, token: str) -> None:
        address = urlsplit(house.url)
        self._connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.text = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        message = {"role": "user", "content": "do the job"}
        body = json.dumps({"model": "assistant", "stream": True, "messages": [message]})
        self._connection.request("POST", "/v1/chat/completions", body, self._headers)
        response = self._connection.getresponse()
        for line in response:
            self.text += line
        self._connection.close()

    @property
    def ended(self) -> bool:
        """Whether the hub has closed it."""
        return not self._reader.is_alive()


def test_a_revoked_device_loses_the_bus_its_stream_and_what_it_had_begun(
    lived_in: House, model: ScriptedModel, journal: dict[str, str]
) -> None:
    house = lived_in
    thief, worker = house.add_spoke("Lost Phone", journal), house.add_spoke("Bedroom PC", journal)
    token = _token(thief)
    model.script = lambda seen: calls(
        "python_exec", code="devices.bedroom_pc.JournalSkill.patiently('job', seconds=60)"
    )
    stream = Stream(house, token)
    wait_for(lambda: worker.journal() == ["job begun"], what="the job to begin")
    assert not stream.ended

    house.json("devices", "revoke", thief.id)

    wait_for(lambda: stream.ended, what="the stream to be closed")
    wait_for(lambda: worker.journal() == ["job begun", "job stopped"], what="the job to be stopped")
    wait_for(
        lambda: f" refuses {thief.id}: " in house.log(thief.id), what="the device to be refused on the bus"
    )
    again = Stream(house, token)
    wait_for(lambda: again.ended, what="the refusal")
    assert b"error" in again.text
    assert worker.journal() == ["job begun", "job stopped"], "nothing new was begun"
    assert house.json("call", worker.id, "JournalSkill.write", "text=after") == "wrote after"


@pytest.mark.slow
def test_a_revoked_device_comes_back_by_a_new_invitation_with_the_key_that_it_had(
    lived_in: House, journal: dict[str, str]
) -> None:
    house = lived_in
    phone = house.add_spoke("Lost Phone", journal)
    key = (phone.home / "spoke" / "key.pem").read_bytes()
    house.json("devices", "revoke", phone.id)
    wait_for(lambda: "devices invite lost_phone" in house.log(phone.id), what="the way back to be told")
    house.kill(phone.id)
    house.log_file(phone.id).unlink()
    house.start_spoke(phone)
    wait_for(lambda: "\nthe hub " in house.log(phone.id), what="a start that says so")
    assert "Ready" not in house.log(phone.id)
    house.kill(phone.id)

    invited = house.json("devices", "invite", "Lost Phone", "--minutes", "60")
    phone.token = invited["token"]
    house.start_spoke(phone)
    house.wait_until_online(phone)

    assert house.json("call", phone.id, "JournalSkill.write", "text=back") == "wrote back"
    assert (phone.home / "spoke" / "key.pem").read_bytes() == key
    refused = house.cli("devices", "invite", "Nobody")
    assert (refused.returncode, "Traceback" in refused.stderr) == (1, False)


def _token(spoke: Spoke) -> str:
    stored = json.loads((spoke.home / "spoke" / "enrolment.json").read_text())
    return str(stored["token"])
