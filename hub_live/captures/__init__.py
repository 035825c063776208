"""Captures: what arrives on topics, recorded in files.

``captures``   starts and stops them, over restarts and within budgets
``capture``    one of them, whether it runs or not
``recording``  one that runs: from the event loop to a thread
``files``      its files: written, rolled, read back
``budget``     removes old files
"""

from hub_live.captures.captures import Captures, open_captures
from hub_live.captures.files.reading import read_capture
from hub_live.captures.operations import CaptureSkill
from hub_live.captures.spec import CaptureInfo, CaptureSpec
from hub_live.topics.samples import TopicChoice

__all__ = [
    "CaptureInfo",
    "CaptureSkill",
    "CaptureSpec",
    "Captures",
    "TopicChoice",
    "open_captures",
    "read_capture",
]
