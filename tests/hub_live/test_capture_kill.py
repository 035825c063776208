"""A capture whose process is killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hub_live.captures import read_capture
from hub_live.topics import Sample

_WRITER = """
import asyncio, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from contextlib import nullcontext
from hub_live.captures.recording import Recording, Shared
from hub_live.captures.tables import CaptureRow
from hub_live.captures.files.series import Series
from hub_live.captures.files.writer import FileLimits, Writer
from hub_live.topics import Sample
from hub_live.topics.samples import TopicChoice

async def nothing(_):
    pass

async def main():
    heard = []
    def follow(topic, listener, *, link, sees):
        heard.append(listener)
        return nullcontext()
    feed = SimpleNamespace(
        gaps=lambda *_, **__: (), on_gap=lambda _: lambda: None, follow=follow, known=lambda *_: ()
    )
    series = Series.within((Path(sys.argv[1]),), "all.jsonl", zstd=sys.argv[2] == "True")
    with ThreadPoolExecutor(1) as thread:
        recording = Recording(
            CaptureRow(), Writer(series, "jsonl", FileLimits(max_bytes=200_000)), Shared(feed, thread),
            is_over=lambda: False, on_change=nothing, on_roll=lambda: None,
        )
        recording.follow([TopicChoice(topic="a")], sees=lambda _: None, since=time.time())
        asyncio.get_running_loop().create_task(recording.run())
        number = 0
        while True:
            for _ in range(20):
                heard[0](Sample("bus", "a", time.time(), b"%d" % number))
                number += 1
            print(number - 1, time.time(), flush=True)
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("zstd", [False, True])
def test_a_killed_process_loses_at_most_the_last_second(tmp_path: Path, zstd: bool) -> None:
    last = -1
    for _ in range(2):
        command = [sys.executable, "-c", _WRITER, str(tmp_path), str(zstd)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            said = []
            for line in process.stdout:
                number, at = line.split()
                said.append((int(number), float(at)))
                if len(said) > 100 and float(at) - said[0][1] > 5:
                    break
            process.kill()
        killed = said[-1][1]
        found = [each.value for each in read_capture(tmp_path / "all.jsonl") if isinstance(each, Sample)]
        assert found[last + 1 :] == list(range(len(found) - last - 1))
        # It writes twice a second; a machine that is busy with others may hold that up.
        old = max(number for number, at in said if at < killed - 3)
        assert found[-1] >= old, json.dumps([found[-1], said[-1], old])
        last = len(found) - 1
