"""Web push against a push service of the test's own (RFC 8030), read as a browser does (RFC 8291)."""

import asyncio
import base64
import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hub_agent.settings import NotificationSettings
from hub_live.events.kinds import NotificationData
from tests.hub_agent.home import open_home
from tests.hub_registry.spokes import eventually

AUTH = b"sixteen bytes ok"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Browser:
    """A subscription, and what its push service was sent for it."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.taken: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
        self.status = 201
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                service.taken.put(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(service.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_address[1]}"

    def subscription(self, **changes: Any) -> dict[str, Any]:
        keys = {"p256dh": encoded(self.point), "auth": encoded(AUTH)}
        return {"endpoint": f"{self.origin}/abc", "keys": keys, "origin": "https://home.example", **changes}

    def read(self) -> tuple[dict[str, str], dict[str, Any]]:
        """Wait for a message; return its headers and its content."""
        headers, body = self.taken.get(timeout=60)
        salt, size, sender = body[:16], body[20], body[21 : 21 + body[20]]
        shared = self.key.exchange(
            ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        )
        material = HKDF(SHA256(), 32, AUTH, b"WebPush: info\0" + self.point + sender).derive(shared)
        key = HKDF(SHA256(), 16, salt, b"Content-Encoding: aes128gcm\0").derive(material)
        nonce = HKDF(SHA256(), 12, salt, b"Content-Encoding: nonce\0").derive(material)
        plain = AESGCM(key).decrypt(nonce, body[21 + size :], None)
        assert plain[-1:] == b"\2"
        return headers, json.loads(plain[:-1])


@pytest.fixture
def browser() -> Iterator[Browser]:
    made = Browser()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


PRIVATE = NotificationSettings(push_private=True)


async def test_a_browser_gets_what_only_it_can_read_signed_by_the_hub_until_it_is_gone(
    tmp_path: Path, browser: Browser
) -> None:
    told = NotificationData(subject="tank", text="The tank is at 97 %.", sender="watcher")
    async with open_home(tmp_path / "home", notifications=PRIVATE) as home, home.client() as client:
        events, admin = home.hub.live.events, home.hub.registry.admin.id
        key = (await client.get("/api/push")).json()["key"]
        made = await client.post("/api/push", json=browser.subscription(name="Phone"))
        again = await client.post("/api/push", json=browser.subscription(name="Phone"))
        listed = (await client.get("/api/push")).json()["devices"]
        assert [each["id"] for each in listed] == [again.json()["id"]] != [made.json()["id"]]
        assert (tmp_path / "home" / "hub" / "web_push.pem").stat().st_mode & 0o077 == 0
        await events.publish("anna", told)
        await events.publish(admin, told)
        headers, said = await asyncio.to_thread(browser.read)
        assert (said["title"], said["body"]) == ("tank", "The tank is at 97 %.")
        assert (headers["content-encoding"], int(headers["ttl"]) > 0) == ("aes128gcm", True)
        signed, _, shown = headers["authorization"].removeprefix("vapid t=").partition(", k=")
        assert shown == key
        point = base64.urlsafe_b64decode(key + "=")
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        claims = jwt.decode(signed, public, algorithms=["ES256"], audience=browser.origin)
        assert claims["sub"] == "https://home.example"
        browser.status = 410
        await events.publish(admin, told)
        await eventually(lambda: not home.hub.live.push.devices(admin))
        assert browser.taken.qsize() == 1  # nothing of anna's
    async with open_home(tmp_path / "home", notifications=PRIVATE) as home, home.client() as client:
        assert (await client.get("/api/push")).json() == {"key": key, "devices": []}


async def test_a_push_service_in_this_network_is_not_asked(
    tmp_path: Path, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_home(tmp_path / "home") as home, home.client() as client:
        for body in (
            browser.subscription(),
            browser.subscription(endpoint="https://push.example/a", keys={"p256dh": "AAAA", "auth": "AAAA"}),
        ):
            assert (await client.post("/api/push", json=body)).status_code == 422
        inside = browser.subscription(endpoint=f"https://localhost:{browser.server.server_address[1]}/abc")
        assert (await client.post("/api/push", json=inside)).status_code == 200
        (found,) = (await client.post("/api/notifications/test")).json()
        assert (found["name"], found["sent"]) == ("web push", False)
        assert "private network" in found["problem"]
        admin = home.hub.registry.admin.id
        await home.hub.live.events.publish(admin, NotificationData(subject="x", text="y"))
        await eventually(lambda: "private network" in caplog.text)
    assert browser.taken.empty()
    assert "/abc" not in caplog.text
