"""Values on the bus and on the home broker: what arrives, what was last heard, and when nothing was heard.

``feed``      what all parts of the hub that follow topics use
``source``    one link: shared subscriptions, dispatch, gaps
``samples``   messages as they arrived, and the memory of the recent ones
``decoding``  payloads as values; ``protobuf`` those in protocol buffers
``tree``      all topics of a filter as one client watches them
``values``    reading and publishing within a person's rights, for ``operations``
"""

from contracts.answers.live import LinkName
from hub_live.topics.decoding import Decoding
from hub_live.topics.feed import Feed, LastHeard, open_feed
from hub_live.topics.samples import Gap, Sample, field
from hub_live.topics.source import TopicLink

__all__ = ["Decoding", "Feed", "Gap", "LastHeard", "LinkName", "Sample", "TopicLink", "field", "open_feed"]
