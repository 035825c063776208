"""A global shortcut for the quick chat: a grab of the key on X11, the portal of the desktop on Wayland."""

import asyncio
import ctypes
import ctypes.util
import logging
import os
import sys
from collections.abc import Callable
from threading import Thread
from typing import Final

from tray.background import Background

_log = logging.getLogger(__name__)

_MODIFIERS: Final = {"shift": 1, "ctrl": 4, "alt": 8, "super": 64, "meta": 64}
_LOCKS: Final = (0, 2, 16, 18)
"""Caps lock, num lock and both: the shortcut works with any of them."""
_KEY_PRESS: Final = 2
_EVENT_LONGS: Final = 24
"""An ``XEvent`` is so many longs."""
_GRAB_ASYNC: Final = 1


def listen(keys: str, pressed: Callable[[], None], *, background: Background) -> None:
    """Call a function in Qt's thread whenever the keys are pressed, whatever window is in front.

    Where the desktop allows no such shortcut, nothing happens but a line in the log.

    Args:
        keys: For example ``Ctrl+Alt+Space``.
    """
    if sys.platform != "linux":
        return
    wait = _ask_portal if os.environ.get("WAYLAND_DISPLAY") else _grab

    def run() -> None:
        if not wait(keys, lambda: background.post(pressed)):
            _log.info("the shortcut %s cannot be had here", keys)

    Thread(target=run, name="shortcut", daemon=True).start()


def _ask_portal(keys: str, pressed: Callable[[], None]) -> bool:
    """Wait for the keys that the desktop assigns, for ever; return False where it assigns none."""
    from tray.portal import wait_for_keys

    try:
        asyncio.run(wait_for_keys(keys, pressed))
    except OSError as error:
        _log.debug("no shortcut by the portal: %s", error)
    return False


def _grab(keys: str, pressed: Callable[[], None]) -> bool:
    """Wait for the keys on a connection of its own, for ever; return False where they cannot be had."""
    name = ctypes.util.find_library("X11")
    if name is None:
        return False
    x11 = ctypes.CDLL(name)
    x11.XOpenDisplay.restype = ctypes.c_void_p
    x11.XDefaultRootWindow.restype = x11.XStringToKeysym.restype = ctypes.c_ulong
    display = ctypes.c_void_p(x11.XOpenDisplay(None))
    *modifiers, key = keys.split("+")
    mask = sum(_MODIFIERS.get(each.strip().lower(), 0) for each in modifiers)
    symbol = x11.XStringToKeysym(key.strip().lower().encode())
    if not display or not symbol or not mask:
        return False
    refused: list[int] = []

    # Without a handler Xlib ends the process where another program has the keys.
    handler = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def on_error(*_: object) -> int:
        refused.append(1)
        return 0

    called = handler(on_error)
    x11.XSetErrorHandler.restype = ctypes.c_void_p
    before = ctypes.c_void_p(x11.XSetErrorHandler(called))
    code, root = x11.XKeysymToKeycode(display, ctypes.c_ulong(symbol)), x11.XDefaultRootWindow(display)
    for locks in _LOCKS:
        x11.XGrabKey(display, code, mask | locks, ctypes.c_ulong(root), 1, _GRAB_ASYNC, _GRAB_ASYNC)
    x11.XSync(display, 0)
    x11.XSetErrorHandler(before)
    if refused:
        return False
    event = (ctypes.c_long * _EVENT_LONGS)()
    while True:
        x11.XNextEvent(display, event)
        if ctypes.cast(event, ctypes.POINTER(ctypes.c_int))[0] == _KEY_PRESS:
            pressed()
