"""Skill calls over the bus: at most once, signed both ways, and never hanging.

::

    caller       the hub's side: open calls, and what happens to them when something dies
    open_call    one call that waits for its outcome
    reservation  one that a device has accepted and not run
    whereabouts  which devices are there
    composer     the messages that the caller sends
    dispatch     how they get onto the bus
    failover     one call over several devices
    responder    the spoke's side: checks, reservations, running, repetition
    replies      what it answers
    memory       what it remembers of calls
    request      what the hub's code asks for
    clock        the hub's time on a spoke
"""

from bus.rpc.caller import Caller
from bus.rpc.clock import EpochClock
from bus.rpc.failover import Served, call_any
from bus.rpc.request import CallerSettings, CallRequest, OnProgress
from bus.rpc.reservation import Reservation
from bus.rpc.responder import Executor, ProgressSink, Responder, ResponderSettings, StillRunning

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
