"""Speech to text and text to speech over Wyoming: a real server in a process of its own, and hostile ones."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from contracts.errors import ConfigError, SoundError, SpeechError
from deploy.directory import Home
from deploy.doctor.checks import check_voice
from tests.hub_registry.spokes import eventually
from tests.ports import free_port
from tests.voice.spoken import frames, spoken
from tests.voice.wyoming_server import ServerProcess, wyoming_server
from voice.engines.speech_to_text.wyoming import WyomingSpeechToText
from voice.engines.text_to_speech.wyoming import WyomingTextToSpeech, open_engine
from voice.engines.wyoming import Deadlines
from voice.serving import Allowed, open_server
from voice.settings import VoiceSettings
from voice.sound.audio import Sound
from voice.wyoming import discovery
from voice.wyoming.connection import Address

PATIENT = Deadlines(connect_s=60, answer_s=60, pause_s=60)
NEVER_AGAIN = Deadlines(connect_s=60, answer_s=60, pause_s=60, retry_s=3_600, retry_max_s=3_600)
HASTY = Deadlines(connect_s=60, answer_s=0.1)
LOOPBACK = ["127.0.0.1"]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with wyoming_server() as process:
        yield process


@pytest.fixture
def address(server: ServerProcess) -> Address:
    return Address("127.0.0.1", server.port)


@asynccontextmanager
async def answering(reply: bytes) -> AsyncIterator[Address]:
    """A server that says the same to everybody, whatever is asked, and then waits."""

    writers: list[asyncio.StreamWriter] = []

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(reply)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield Address("127.0.0.1", listening.sockets[0].getsockname()[1])
        for writer in writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


async def heard_by(where: Address, deadlines: Deadlines = PATIENT) -> str:
    engine = WyomingSpeechToText(where, deadlines=deadlines)
    return (await engine.transcribe(frames(bytes(64_000)), language="en-US")).text


async def test_a_server_hears_what_is_said(address: Address) -> None:
    engine = WyomingSpeechToText(address, deadlines=PATIENT)
    said = spoken("turn the volume to fifty percent")
    for _ in range(2):  # one connection a question, so that a server that was restarted is no trouble
        found = await engine.transcribe(frames(said), language="en-US")
        assert (found.text, found.certain) == ("turn the volume to fifty percent", True)


async def test_a_server_speaks_and_is_heard_by_the_other(address: Address) -> None:
    pieces = [
        each
        async for each in WyomingTextToSpeech(address, deadlines=PATIENT).say("stop the music", language="en")
    ]
    assert len(pieces) > 1
    assert {piece.rate for piece in pieces} == {22_050}
    assert sum(len(piece.samples) for piece in pieces) > 22_050


async def test_a_barge_in_ends_the_connection(address: Address) -> None:
    engine = WyomingTextToSpeech(address, deadlines=PATIENT)
    saying = engine.say("a very long text " * 50, language="en")
    assert isinstance(await anext(saying), Sound)
    await saying.aclose()
    assert [piece async for piece in engine.say("stop", language="en")]


def test_the_doctor_tries_the_servers_of_the_settings(
    address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voice.limits.DISCOVERY_ANSWER_S", 60)
    gone = Address("127.0.0.1", free_port())
    engines = f'speech_to_text = ["wyoming://{address}"]\ntext_to_speech = ["wyoming://{gone}"]\n'
    paths = f'microphone = "file:{tmp_path}"\nloudspeaker = "file:{tmp_path}"\n'
    (tmp_path / "strawberry.toml").write_text(f"[voice]\nenabled = true\n{engines}{paths}")
    _, there, missing = check_voice(Home(tmp_path))
    assert (there.ok, there.detail) == (True, str(address))
    assert (missing.ok, f"{gone} does not answer" in missing.detail) == (False, True)


async def test_a_server_that_died_is_named_once_and_left_alone_until_it_may_be_back() -> None:
    # A port that no other connection is given while nothing listens there.
    with wyoming_server(free_port()) as process:
        where = Address("127.0.0.1", process.port)
        engine = WyomingSpeechToText(where, deadlines=NEVER_AGAIN)
        assert (
            await engine.transcribe(frames(spoken("stop the music")), language="en")
        ).text == "stop the music"
        process.kill()
        with pytest.raises(SpeechError, match=f"the Wyoming server {where} cannot be reached") as first:
            await engine.transcribe(frames(b""), language="en")
        assert "[voice]" in first.value.hint
        with wyoming_server(process.port):
            with pytest.raises(SpeechError, match="cannot be reached"):  # not asked again that soon
                await engine.transcribe(frames(b""), language="en")
            fresh = WyomingSpeechToText(where, deadlines=PATIENT)
            assert (await fresh.transcribe(frames(spoken("stop the music")), language="en")).certain


async def test_a_microphone_that_fails_is_no_failure_of_the_server(address: Address) -> None:
    async def unplugged() -> AsyncIterator[bytes]:
        yield bytes(640)
        raise SoundError("the microphone is gone")

    engine = WyomingSpeechToText(address, deadlines=NEVER_AGAIN)
    with pytest.raises(SoundError, match="the microphone is gone"):
        await engine.transcribe(unplugged(), language="en")
    assert (await engine.transcribe(frames(spoken("play some jazz")), language="en")).text == "play some jazz"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not a Wyoming event"),
        (b"[]\n", "not a Wyoming event"),
        (b'{"type": "transcript", "data_length": 99999999999}\n', "too long"),
        (b'{"type": "transcript", "data_length": -1}\n', "not a Wyoming event"),
        (b'{"type": "audio-chunk", "payload_length": 99999999}\n', "too long"),
        (b'{"type": "transcript", "data": [1]}\n', "not a Wyoming event"),
        (b"[" * 200_000 + b"\n", "not a Wyoming event"),
        (b"x" * 3_000_000, "not a Wyoming event"),
        (b'{"type": "transcript"}\n', "cannot be read"),
        (b'{"type": "transcript", "data": {"text": 7}}\n', "without a text"),
        (b'{"type": "error", "data": {"text": "no\\u001b[2J model"}}\n', r"says: no\[2J model"),
    ],
)
async def test_a_hostile_server_gives_one_error(reply: bytes, said: str) -> None:
    async with answering(reply) as where:
        with pytest.raises(SpeechError, match=said):
            await heard_by(where)


async def test_a_silent_server_costs_the_deadline() -> None:
    async with answering(b"") as where:
        with pytest.raises(SpeechError, match="does not answer in time"):
            await heard_by(where, HASTY)


async def test_a_server_that_sends_for_ever_and_no_sound_costs_the_deadline() -> None:
    empty = b'{"type": "audio-chunk", "data": {"rate": 16000, "width": 2, "channels": 1}}\n'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while True:
                writer.write(empty)
                await writer.drain()
                await asyncio.sleep(0)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        engine = WyomingTextToSpeech(Address(*listening.sockets[0].getsockname()), deadlines=HASTY)
        with pytest.raises(SpeechError, match="does not answer in time"):
            await anext(engine.say("hello", language="en"))
    # Each second is silence before the answer.
    assert open_engine(VoiceSettings(), "pi.local:10200").deadlines.answer_s < 5


async def test_sound_in_another_form_is_refused() -> None:
    form = b'"data": {"rate": 16000, "width": 4, "channels": 2}'
    chunk = b'{"type": "audio-chunk", ' + form + b', "payload_length": 4}\nabcd'
    async with answering(chunk) as where:
        with pytest.raises(SpeechError, match="not 16-bit mono"):
            await anext(WyomingTextToSpeech(where, deadlines=PATIENT).say("hello", language="en"))


async def test_a_server_is_found_in_the_network(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = f"_wyo{os.getpid()}._tcp.local."  # another test may announce a server at the same time
    monkeypatch.setattr(discovery, "DNS_SD_SERVICE", service)
    monkeypatch.setattr("voice.limits.DISCOVERY_ANSWER_S", 60.0)

    def announced(name: str, host: str, port: int) -> ServiceInfo:
        return ServiceInfo(
            service,
            f"{name}.{service}",
            addresses=[socket.inet_aton(host)],
            port=port,
            server=f"{name}.local.",
        )

    async with AsyncZeroconf(interfaces=LOOPBACK) as network:
        # One outside of the home is never asked, one that is no Wyoming server is passed over.
        for each in (
            announced("far", "8.8.8.8", 10_300),
            announced("wrong", "127.0.0.1", 9),
            announced("right", "127.0.0.1", server.port),
        ):
            await network.async_register_service(each, cooperating_responders=True)
        found = await discovery.discover("tts", listen_s=60, interfaces=LOOPBACK)
        await network.async_unregister_all_services()
    assert found == Address("127.0.0.1", server.port)


async def test_what_is_missing_in_the_network_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "DNS_SD_SERVICE", f"_none{os.getpid()}._tcp.local.")

    async def find() -> Address:
        return await discovery.discover("asr", listen_s=0.2, interfaces=LOOPBACK)

    engine = WyomingSpeechToText(find, deadlines=PATIENT)
    with pytest.raises(SpeechError, match="no Wyoming server for speech to text was found") as error:
        await engine.transcribe(frames(b""), language="en")
    assert error.value.hint == "Start one, or set its address in [voice]."


def test_an_address_is_read_as_people_write_it() -> None:
    assert Address.parse("pi.local:10300") == Address.parse("tcp://pi.local:10300") == ("pi.local", 10_300)
    assert str(Address.parse("[::1]:10300")) == "[::1]:10300"
    foreign = ("pi.local", "http://pi.local:80", "tcp://", "a:b", "pi.local:99999", "unix:///tmp/x")
    for wrong in (*foreign, "pi..local:10300", f"{64 * 'a'}.local:10300"):
        with pytest.raises(ConfigError, match="not the address of a Wyoming server"):
            Address.parse(wrong)


def test_others_may_connect_only_where_they_are_named() -> None:
    allowed = Allowed(["192.168.1.5", "10.0.0.0/24"])
    assert all(peer in allowed for peer in ("127.0.0.1", "::1", "192.168.1.5", "::ffff:10.0.0.7"))
    assert not any(peer in allowed for peer in ("192.168.1.6", "10.0.1.1", "", "::2"))
    allowed.check("0.0.0.0", protocol="Wyoming")
    with pytest.raises(ConfigError, match="Wyoming has no login") as error:
        Allowed().check("0.0.0.0", protocol="Wyoming")
    assert "'allow'" in error.value.hint
    with pytest.raises(ConfigError, match="'allow'"):
        Allowed(["everybody"])


async def test_a_peer_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voice.limits.CLOSE_S", 0.01)
    served: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        writer.write(bytes(64 * 1024 * 1024))

    async with open_server(serve, host="127.0.0.1", port=0, protocol="Wyoming") as port:
        with socket.create_connection(("127.0.0.1", port)):
            await eventually(lambda: served and served[0].get_extra_info("socket").fileno() == -1)
