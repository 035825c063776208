"""The files of captures: formats, rolling, crashes, full disks, budgets, and reading them back."""

import csv
import heapq
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from contracts.errors import Forbidden
from hub_agent.settings import CaptureSettings
from hub_live.captures.budget import MB, Kept, capture_files, clean_up
from hub_live.captures.files.formats import FormatName, Missing
from hub_live.captures.files.numbers import plotted
from hub_live.captures.files.reading import each_once, read_capture
from hub_live.captures.files.series import Series
from hub_live.captures.files.writer import FileLimits, Writer
from hub_live.topics.samples import Gap, Sample
from identity.confined import Directory

AT = 1_700_000_000.0


def sample(
    payload: bytes | str | float | dict, *, topic: str = "devices/nas/state/Disk/used", n: int = 0
) -> Sample:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return Sample("bus", topic, AT + n / 1000, data)


def writer(folder: Path, path: str, name: FormatName = "jsonl", **limits) -> Writer:
    zstd = limits.pop("zstd", False)
    return Writer(
        Series.within([folder], path, zstd=zstd), name, FileLimits(**{"max_bytes": 1 << 20, **limits})
    )


def write(folder: Path, path: str, batch: list, name: FormatName = "jsonl", **limits) -> None:
    one = writer(folder, path, name, **limits)
    one.write(batch)
    one.close()


def read(path: Path) -> list[Sample]:
    return [each for each in read_capture(path) if isinstance(each, Sample)]


def table(file: Path) -> list[dict]:
    with file.open() as lines:
        return list(csv.DictReader(lines))


PAYLOADS = [
    b"21.5",
    b'{"value": 3, "more": [1, "two"]}',
    b'{\n  "pretty": true\n}',
    b"on",
    b'"quoted"',
    b"",
    b"null",
    b"NaN",
    "Küche ☂".encode(),
    b"two\nlines",
    b"\xff\xd8\xff\xe0 a picture",
    b"\x00\x01text",
    b"+21.5",
    b'{"half a pair": "\\ud800"}',
]


@pytest.mark.parametrize("zstd", [False, True])
def test_what_was_recorded_is_read_back_with_the_same_values(tmp_path, zstd):
    samples = [sample(payload, n=n) for n, payload in enumerate(PAYLOADS)]
    samples.append(Sample("home", "zigbee2mqtt/lamp", AT + 1, b"1", retained=True))
    gap = Missing("bus", AT + 1, AT + 2, "connection")
    write(tmp_path, "all.jsonl", [*samples, gap], zstd=zstd)
    found = read(tmp_path / "all.jsonl")
    assert [(each.link, each.topic, each.at, each.retained) for each in found] == [
        (each.link, each.topic, pytest.approx(each.at, abs=2e-6), each.retained) for each in samples
    ]
    assert [each.value for each in found] == [each.value for each in samples]
    assert list(read_capture(tmp_path / "all.jsonl"))[-1] == Gap("bus", AT + 1, AT + 2)


def test_lines_have_the_fields_that_others_build_on(tmp_path):
    write(tmp_path, "all.jsonl", [sample({"a": 1}), sample(b"\xff\x00")])
    first, second = map(json.loads, (tmp_path / "all.jsonl").read_text().splitlines())
    assert first == {
        "at": "2023-11-14T22:13:20.000000Z",
        "topic": "devices/nas/state/Disk/used",
        "link": "bus",
        "payload": {"a": 1},
    }
    assert second["payload_base64"] == "/wA="


@pytest.mark.parametrize("zstd", [False, True])
def test_a_capture_is_rolled_by_size_and_read_in_order(tmp_path, zstd):
    one = writer(tmp_path, "deep/er/all.jsonl", max_bytes=2_000, zstd=zstd)
    for start in range(0, 500, 50):
        one.write([sample({"n": n, "noise": os.urandom(20).hex()}, n=n) for n in range(start, start + 50)])
    one.close()
    files = sorted(each.name for each in (tmp_path / "deep/er").iterdir())
    suffix = ".jsonl.zst" if zstd else ".jsonl"
    assert len(files) > 3
    assert {f"all{suffix}", f"all.000002{suffix}"} < set(files)
    assert all(each.stat().st_size < 6_000 for each in (tmp_path / "deep/er").iterdir())
    assert [each.value["n"] for each in read(tmp_path / "deep/er/all.jsonl")] == list(range(500))


def test_a_capture_is_rolled_by_age(tmp_path):
    one = writer(tmp_path, "all.jsonl", max_age_s=0.01)
    one.write([sample(1)])
    one.begun_at -= 1
    one.write([sample(2)])
    one.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["all.000002.jsonl", "all.jsonl"]


def test_a_new_column_begins_a_new_csv_file_with_its_header(tmp_path):
    one = writer(tmp_path, "all.csv", "csv")
    one.write(
        [
            sample({"t": 1}),
            sample({"t": 2, "at": "noon"}),
            sample({"in": {"h": True}, "list": [1]}),
            sample(5),
        ]
    )
    one.close()
    # It goes on with its last file, also after a restart.
    write(tmp_path, "all.csv", [sample({"t": 3}), Missing("bus", AT, AT + 1, "connection")], "csv")
    tables = [table(tmp_path / name) for name in ("all.csv", "all.000002.csv")]
    assert [list(table[0]) for table in tables] == [
        ["at", "topic", "link", "t"],
        ["at", "topic", "link", "t", "payload.at"],
    ]
    assert tables[1][0]["payload.at"] == "noon"
    third = table(tmp_path / "all.000003.csv")
    assert third[0] | {"at": "", "topic": ""} == {
        "at": "",
        "topic": "",
        "link": "bus",
        "t": "",
        "payload.at": "",
        "in.h": "true",
        "list": "[1]",
    }
    assert [row["value"] for row in table(tmp_path / "all.000004.csv")] == ["5", ""]
    assert json.loads((tmp_path / "all.csv.gaps.jsonl").read_text())["gap"]["reason"] == "connection"
    assert Gap("bus", AT, AT + 1) in list(read_capture(tmp_path / "all.csv"))
    assert [each.value for each in read(tmp_path / "all.csv")] == [
        {"t": 1},
        {"t": 2, "at": "noon"},
        {"in": {"h": True}, "list": [1]},
        5,
        {"t": 3},
    ]
    numbers = plotted(tmp_path / "all.csv", fields=("t",)).lines
    assert [value for _, value in numbers["devices/nas/state/Disk/used t"]] == [1, 2, 3]


def test_a_csv_file_with_line_ends_in_its_cells_and_a_torn_end_is_read(tmp_path):
    write(tmp_path, "all.csv", [sample({"t": text}) for text in ("a\rb", "a\nb", "OK\r", "21.5")], "csv")
    path = tmp_path / "all.csv"
    path.write_bytes(path.read_bytes()[:-3])
    assert [each.value for each in read(path)] == [{"t": "a\rb"}, {"t": "a\nb"}, {"t": "OK\r"}]


def test_ever_new_fields_do_not_begin_ever_new_csv_files(tmp_path):
    write(tmp_path, "all.csv", [sample({f"field {n}": n}) for n in range(300)], "csv", max_bytes=1 << 30)
    assert len(list(tmp_path.iterdir())) <= 200
    last = max(tmp_path.glob("all.0*.csv"))
    assert table(last)[-1]["others"] == '{"field 299": 299}'


SPS, PPS, IDR, SLICE = (b"\0\0\0\1" + head + b"x" * 50 for head in (b"\x67", b"\x68", b"\x65", b"\x41"))


@pytest.mark.parametrize("piece", [7, 54, 200, 10_000], ids="pieces of {} bytes".format)
def test_h264_is_kept_whole_and_rolled_where_decoding_can_begin(tmp_path, piece):
    stream = (SPS + PPS + IDR + SLICE * 20) * 30
    chunks = [stream[start : start + piece] for start in range(0, len(stream), piece)]
    write(tmp_path, "cam.h264", [sample(chunk) for chunk in chunks], "h264", max_bytes=3_000)
    contents = [
        each.read_bytes() for each in sorted(tmp_path.iterdir(), key=lambda each: each.name != "cam.h264")
    ]
    assert len(contents) > (1 if piece == 10_000 else 5)
    assert all(content.lstrip(b"\0")[:2] == b"\1\x67" for content in contents)
    # A start code that came in two messages stands at the end of one file and at the beginning of the next.
    assert b"".join(contents).replace(b"\0", b"").replace(b"\1\1", b"\1") == stream.replace(b"\0", b"")


def test_a_file_that_begins_with_a_picture_has_the_parameters_it_needs(tmp_path):
    messages = [SPS + PPS, IDR, *[SLICE] * 6, IDR, SLICE]
    write(tmp_path, "cam.h264", [sample(each) for each in messages], "h264", max_bytes=300)
    assert (tmp_path / "cam.000002.h264").read_bytes() == SPS + PPS + IDR + SLICE


def test_a_stream_without_a_place_to_begin_is_rolled_all_the_same(tmp_path):
    write(tmp_path, "cam.h264", [sample(SLICE)] * 100, "h264", max_bytes=1_000)
    assert all(each.stat().st_size <= 2_100 for each in tmp_path.iterdir())


@pytest.mark.parametrize("zstd", [False, True])
def test_raw_is_the_payloads_and_nothing_else(tmp_path, zstd):
    write(tmp_path, "audio.pcm", [sample(b"\0\1"), sample(b"\n\2")], "raw", zstd=zstd)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    assert (zstandard.ZstdDecompressor().stream_reader(content).read() if zstd else content) == b"\0\1\n\2"


@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize("cut", [2, 5, 40, 200])
def test_a_torn_end_is_skipped_and_the_capture_goes_on_after_it(tmp_path, zstd, cut):
    one = writer(tmp_path, "all.jsonl", zstd=zstd)
    for start in range(0, 100, 10):
        one.write([sample({"n": n, "noise": os.urandom(8).hex()}) for n in range(start, start + 10)])
    # Neither closed nor ended: what a crash leaves, and then the disk has lost the end of it.
    file = tmp_path / ("all.jsonl.zst" if zstd else "all.jsonl")
    os.truncate(file, file.stat().st_size - cut)
    whole = [each.value["n"] for each in read(tmp_path / "all.jsonl")]
    assert len(whole) >= 80
    write(tmp_path, "all.jsonl", [sample({"n": 1000 + n}) for n in range(3)], zstd=zstd)
    assert [each.value["n"] for each in read(tmp_path / "all.jsonl")] == [*whole, 1000, 1001, 1002]
    if zstd:
        # Also for other programs.
        zstandard.ZstdDecompressor().stream_reader(file.read_bytes(), read_across_frames=True).readall()


def test_a_file_that_ends_in_zeros_is_continued(tmp_path):
    one = writer(tmp_path, "all.jsonl", zstd=True)
    one.write([sample(1)])
    with (tmp_path / "all.jsonl.zst").open("ab") as file:
        file.write(bytes(5_000))
    write(tmp_path, "all.jsonl", [sample(2)], zstd=True)
    assert [each.value for each in read(tmp_path / "all.jsonl")] == [1, 2]


def test_a_file_that_a_person_removed_is_begun_again(tmp_path):
    one = writer(tmp_path, "all.jsonl")
    one.write([sample(1)])
    (tmp_path / "all.jsonl").unlink()
    one.write([sample(2)])
    assert [each.value for each in read(tmp_path / "all.jsonl")] == [2]


_FULL = """
import sys
from pathlib import Path
from tests.hub_live.test_capture_files import sample, writer
from hub_live.captures.files.reading import read_capture

folder, zstd = Path("/mnt"), sys.argv[1] == "True"
one = writer(folder, "all.jsonl", zstd=zstd)
ballast = folder / "ballast"
ballast.write_bytes(bytes(900 * 1024))
written = []
try:
    for number in range(10_000):
        numbers = range(number * 10, number * 10 + 10)
        batch = [sample({"n": each, "noise": "%032x" % hash((each, "x"))}) for each in numbers]
        one.write(batch)
        written += numbers
except OSError as error:
    assert error.errno == 28, error
assert one.done == 0
ballast.unlink()
one.write([sample({"n": -1})])
one.close()
assert [each.value["n"] for each in read_capture(folder / "all.jsonl")] == [*written, -1]
assert len(written) > 100
"""


@pytest.mark.skipif(
    subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0
    if sys.platform == "linux"
    else True,
    reason="a disk of its own needs Linux with user namespaces",
)
@pytest.mark.parametrize("zstd", [False, True])
def test_a_full_disk_costs_only_what_came_while_it_was_full(zstd):
    shell = f'mount -t tmpfs -o size=1m none /mnt && exec "{sys.executable}" -c "$0" {zstd}'
    done = subprocess.run(["unshare", "-rm", "sh", "-c", shell, _FULL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_absolute_path_within_an_allowed_folder_is_taken(tmp_path):
    folders = [tmp_path / "first", tmp_path / "second"]
    assert Series.within(folders, f"{tmp_path}/second/in/all.csv").path == tmp_path / "second/in/all.csv"
    assert Series.within(folders, "in/all.csv").path == tmp_path / "first/in/all.csv"
    for path in (f"{tmp_path}/second/../all.csv", f"{tmp_path}/secondary/all.csv", f"{tmp_path}/all.csv"):
        with pytest.raises(Forbidden):
            Series.within(folders, path)


def _link(target: Path, link: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)


@pytest.mark.skipif(os.name != "posix", reason="links need no rights on POSIX only")
@pytest.mark.parametrize(
    "lay",
    [
        lambda folder, outside: _link(outside / "file", folder / "in/all.jsonl"),
        lambda folder, outside: _link(outside / "new", folder / "in/all.jsonl"),
        lambda folder, outside: _link(outside, folder / "in"),
        lambda folder, outside: (folder / "in").write_text("a file"),
        lambda folder, outside: ((folder / "in").mkdir(), os.link(outside / "file", folder / "in/all.jsonl")),
        lambda folder, outside: ((folder / "in").mkdir(), os.mkfifo(folder / "in/all.jsonl")),
        lambda folder, outside: (folder / "in/all.jsonl").mkdir(parents=True),
    ],
    ids=["link", "dangling link", "linked directory", "file as directory", "hard link", "fifo", "directory"],
)
def test_links_and_special_files_are_refused(tmp_path, lay):
    folder, outside = tmp_path / "captures", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "file").write_text("untouched")
    lay(folder, outside)
    with pytest.raises(Forbidden):
        writer(folder, "in/all.jsonl").write([sample(1)])
    assert [each.read_text() for each in outside.iterdir()] == ["untouched"]


def test_the_oldest_files_go_when_there_are_too_many_or_too_much(tmp_path):
    first, second = (Series.within([tmp_path], f"{name}.jsonl") for name in ("first", "second"))
    now = time.time()
    for age, name in enumerate(["second.000002", "first.000003", "first.000002", "second", "first"]):
        file = tmp_path / f"{name}.jsonl"
        file.write_bytes(bytes(100))
        os.utime(file, (now - age * 86_400, now - age * 86_400))
    (tmp_path / "foreign.jsonl").write_bytes(bytes(1000))

    def left(kept: Kept, **settings) -> set[str]:
        captures = {"first": kept, "second": Kept(second, active=False)}
        files, full = clean_up(captures, CaptureSettings(folders=(tmp_path,), **settings), now=now)
        assert (len(files), full) == (len(list(tmp_path.iterdir())) - 1, frozenset())
        return {each.name.removesuffix(".jsonl") for each in tmp_path.iterdir()} - {"foreign"}

    assert left(Kept(first, active=True)) == {
        "first",
        "first.000002",
        "first.000003",
        "second",
        "second.000002",
    }
    assert left(Kept(first, active=True, max_files=2)) == {
        "first.000002",
        "first.000003",
        "second",
        "second.000002",
    }
    assert left(Kept(first, active=True, keep_days=1.5)) == {"first.000003", "second", "second.000002"}
    assert left(Kept(first, active=True), folder_files=2) == {"first.000003", "second.000002"}
    assert left(Kept(first, active=True), total_mb=100 / MB) == {"first.000003"}


def test_a_folder_that_is_over_its_budget_is_full(tmp_path):
    series = Series.within([tmp_path], "all.jsonl")
    (tmp_path / "all.jsonl").write_bytes(bytes(100))
    for active, full in ((True, {tmp_path}), (False, set())):
        _, found = clean_up(
            {"all": Kept(series, active=active)},
            CaptureSettings(folders=(tmp_path,), folder_mb=50 / MB),
            now=time.time(),
        )
        assert found == full
    assert not list(tmp_path.iterdir())


def test_what_is_recorded_and_remembered_is_one_message_and_equal_ones_are_several() -> None:
    heard = [Sample("bus", "a", AT + number / 20_000, b'{"on": true}') for number in range(1, 5)]
    recorded = [replace(each, at=int(each.at * 1e6) / 1e6, payload=b'{"on":true}') for each in heard]
    both = heapq.merge(recorded, heard, key=lambda each: each.at)
    assert list(each_once(both)) == recorded


def test_a_folder_is_looked_through_once_for_all_captures_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captures = {name: Series(tmp_path, (f"{name}.jsonl",)) for name in ("a", "b", "c")}
    for name in ("a.jsonl", "a.000002.jsonl", "A.000004.jsonl", "b.jsonl", "b.txt"):
        (tmp_path / name).write_bytes(b"1234")
    looked: list[Directory] = []
    files = Directory.files
    monkeypatch.setattr(Directory, "files", lambda self: looked.append(self) or files(self))
    found = Counter(
        file.capture for file in capture_files({name: Kept(each) for name, each in captures.items()})
    )
    assert (found, len(looked)) == ({"a": 3, "b": 1}, 1)
