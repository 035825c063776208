"""Skill calls over the bus: at most once, signed both ways, and never hanging.

::

    request    one call as the hub's code asks for it
    caller     the hub's side: sends calls, takes replies, follows the devices' presence
    open_call  one call without an outcome, and the transitions of its state
    sending    the messages of the hub: call, start, cancel
    failover   one call over several devices
    responder  the spoke's side: checks, reservations, running, repetition
    incoming   one call on a spoke, and the cache of outcomes by call id
    replies    the messages of a spoke
"""

from bus.rpc.caller import Caller
from bus.rpc.failover import Served, call_any
from bus.rpc.request import CallerSettings, CallRequest, EpochClock, OnProgress
from bus.rpc.responder import Executor, ProgressSink, Responder, ResponderSettings

__all__ = [
    "CallRequest",
    "Caller",
    "CallerSettings",
    "EpochClock",
    "Executor",
    "OnProgress",
    "ProgressSink",
    "Responder",
    "ResponderSettings",
    "Served",
    "call_any",
]
