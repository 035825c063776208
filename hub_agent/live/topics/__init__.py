"""Values on the bus and on the home broker: what arrives, what was last heard, and when nothing was heard."""

from hub_agent.live.topics.decoding import Decoding
from hub_agent.live.topics.feed import Feed, open_feed
from hub_agent.live.topics.heard import LastHeard
from hub_agent.live.topics.samples import Gap, LinkName, Sample, field

__all__ = ["Decoding", "Feed", "Gap", "LastHeard", "LinkName", "Sample", "field", "open_feed"]
