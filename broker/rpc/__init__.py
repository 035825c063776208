"""Skill calls over the bus: at most once, signed both ways, and never hanging.

::

    caller     the hub's side: open calls, presence, what happens to a call when something dies
    open_call  one call that waits for its outcome
    composer   the messages that the caller sends
    failover   one call over several devices
    responder  the spoke's side: checks, reservations, running, repetition
    memory     what the responder remembers of calls
    request    what the hub's code asks for
    clock      the hub's time on a spoke
"""

from broker.rpc.caller import Caller, Reservation
from broker.rpc.clock import EpochClock
from broker.rpc.failover import Served, call_any
from broker.rpc.request import CallerSettings, CallRequest, OnProgress
from broker.rpc.responder import Executor, ProgressSink, Responder, ResponderSettings, StillRunning

__all__ = [
    "CallRequest",
    "Caller",
    "CallerSettings",
    "EpochClock",
    "Executor",
    "OnProgress",
    "ProgressSink",
    "Reservation",
    "Responder",
    "ResponderSettings",
    "Served",
    "StillRunning",
    "call_any",
]
