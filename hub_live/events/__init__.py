"""Events: what happened in the home, stored, streamed and published for the people it concerns.

``events``    the stored events of each person
``presence``  devices that come and go, as events
``http``      their stream over HTTP
"""

from hub_live.events.events import Events, Kind

__all__ = ["Events", "Kind"]
