"""Events: what happened in the home, stored, streamed and published for the people it concerns.

``kinds``       what happens, and the data of each kind
``events``      the stored events of each person
``presence``    devices that come and go, as events
``operations``  their stream over HTTP
"""

from contracts.answers.live import Event
from hub_live.events.events import Events
from hub_live.events.kinds import EventData, NotificationData

__all__ = ["Event", "EventData", "Events", "NotificationData"]
