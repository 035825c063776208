"""The part of the sandbox that runs inside it: the names that user code sees, and one run of it.

Nothing here guards anything: code in the sandbox can change this module. It makes honest code
comfortable; the program at the other end of the bridge checks all that comes out.
"""

import ast
import asyncio
import contextlib
import contextvars
import dataclasses
import datetime
import inspect
import json
import linecache
import os
import random
import sys
import traceback
import types

from pyodide.code import CodeRunner
from pyodide.ffi import run_sync

_run = contextvars.ContextVar("run", default="")
_kept_sources = 50


class SkillError(Exception):
    """A call gave no result.

    Attributes:
        code: Why, in one word: ``offline``, ``refused``, ``bad_arguments``, ``timeout``, …
        message: What happened.
        hint: What to do about it; may be empty.
        device: The device concerned, or None.
    """

    code = "skill_error"

    def __init__(self, message, hint="", code=None, device=None):
        super().__init__(f"{message} ({hint})" if hint else message)
        self.message = message
        self.hint = hint
        self.code = code or self.code
        self.device = device


def _named(name, code, doc):
    return type(name, (SkillError,), {"code": code, "__doc__": doc, "__module__": __name__})


_ERRORS = {
    error.code: error
    for error in (
        _named("DeviceOffline", "offline", "The device is not connected."),
        _named("UnknownSkill", "unknown_skill", "There is no such device, skill or method."),
        _named("BadArguments", "bad_arguments", "The arguments do not fit the method."),
        _named("Refused", "refused", "The call is not allowed."),
        _named("NeedsConfirmation", "needs_confirmation", "The user was not asked, or said no."),
        _named("DeviceBusy", "busy", "The device, or this run, has too much to do."),
        _named("TooLarge", "too_large", "The arguments or the result are too large."),
        _named("CallTimeout", "timeout", "The method took too long."),
        _named("OutcomeUnknown", "outcome_unknown", "The call may or may not have run."),
    )
}


class Record(dict):
    """An object in a result: ``song["title"]`` and ``song.title`` are the same.

    A key that is also the name of a dict method (``items``, ``keys``, ``values`` …) needs the brackets.
    """

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no field {name!r}; there are: {', '.join(map(str, self))}") from None

    def __setattr__(self, name, value):
        self[name] = value

    def __dir__(self):
        return [*super().__dir__(), *(key for key in self if isinstance(key, str))]


class Path:
    """A device, a skill, or a method, by its dotted name.

    Call a method like any function: ``devices.kitchen_pc.MusicSkill.play("song")`` gives its result.
    To make several calls at the same time, use the form with ``.aio``, which is awaitable::

        await asyncio.gather(devices.a.LampSkill.on.aio(), devices.b.LampSkill.on.aio())

    Names that begin with an underscore are never looked up on a device.
    """

    __slots__ = ("_path",)

    def __init__(self, path):
        object.__setattr__(self, "_path", path)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Path(f"{self._path}.{name}")

    def __setattr__(self, name, value):
        raise AttributeError(f"{self._path}.{name} cannot be assigned to")

    def __call__(self, *args, **kwargs):
        """Call the method and wait for its result."""
        id_, line = _compose(self._path, args, kwargs)
        # Where other tasks could go on meanwhile, the event loop waits.
        body = None if _others() else _bridge.call_now(id_, line)
        return _open(run_sync(_bridge.call(id_, line)) if body is None else body)

    async def aio(self, *args, **kwargs):
        """Call the method; to be awaited, also many at once in ``asyncio.gather``."""
        return _open(await _bridge.call(*_compose(self._path, args, kwargs)))

    def __repr__(self):
        return f"<{self._path}>"

    def __dir__(self):
        return ["aio"]


class _Bridge:
    """What the host gave, and the bounds of the current run."""

    def __init__(self):
        self.send = self.call = self.call_now = None
        self.calls = 0
        self.argument_bytes = 0


_bridge = _Bridge()
_namespace = {}
_runs = -1  # the first is the host's own, which warms the interpreter up


def _compose(path, args, kwargs):
    """Return the id of a new call and the line that makes it."""
    try:
        given = _encode([list(args), kwargs])
    except (TypeError, ValueError) as error:
        raise _ERRORS["bad_arguments"](
            f"arguments of {path} must be plain data: {error}", hint="pass numbers, text, lists and dicts"
        ) from None
    if len(given.encode("utf-8", "replace")) > _bridge.argument_bytes:
        raise _ERRORS["too_large"](
            f"arguments of {path} are larger than {_bridge.argument_bytes} bytes", hint="pass less at once"
        )
    _bridge.calls += 1
    line = {"type": "call", "run": _run.get(), "id": _bridge.calls, "path": path, "given": given}
    return _bridge.calls, _encode(line)


def _others():
    """Return whether there are tasks besides the one that runs."""
    loop = asyncio.get_event_loop()
    return bool(asyncio.all_tasks(loop) - {asyncio.current_task(loop)})


def _open(body):
    """Turn the body of an answer into the call's result, or raise what it says."""
    answer = _decode(body)
    if "error" not in answer:
        return answer["value"]
    error = answer["error"]
    kind = _ERRORS.get(error["code"], SkillError)
    raise kind(error["message"], error["hint"], error["code"], error["device"])


def _plain(value):
    """Return plain data for the usual values that JSON has no form of."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, types.GeneratorType | range):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


# Made once: ``json.dumps`` and ``json.loads`` with options make a new one for each call.
_encode = json.JSONEncoder(default=_plain, ensure_ascii=False, allow_nan=False).encode
_decode = json.JSONDecoder(object_hook=Record).decode


class _LenientAwait(ast.NodeTransformer):
    """Lets ``await devices.x.Skill.method()`` stand for the call, which needs no ``await``."""

    def visit_Await(self, node):
        self.generic_visit(node)
        node.value = ast.Call(ast.Name("__settle", ast.Load()), [node.value], [])
        return node


async def _settle(value):
    return await value if inspect.isawaitable(value) else value


def _user_frames(error, seen=None):
    """Drop the frames that are not the user's, in the error and in what caused it."""
    seen = seen if seen is not None else set()
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    error.stack = traceback.StackSummary.from_list(
        frame for frame in error.stack if frame.filename.startswith("<run ")
    )
    for inner in (error.__cause__, error.__context__, *(error.exceptions or ())):
        _user_frames(inner, seen)


def _describe(error):
    described = traceback.TracebackException.from_exception(error)
    _user_frames(described)
    return "".join(described.format()).rstrip()


def _cut(text, limit):
    if len(text) <= limit:
        return text, False
    return f"{text[:limit]}… [cut: {len(text)} characters in all]", True


def _report(run, value_bytes, *, value=None, error=None, left_over=0):
    """Return the last line of a run."""
    done = {"type": "done", "run": run, "status": "ok", "value": "null", "repr": "", "traceback": ""}
    done |= {"cut": False, "left_over": left_over}
    if error is not None:
        done["status"] = "memory" if isinstance(error, MemoryError) else "error"
        done["traceback"], done["cut"] = _cut(_describe(error), 16_000)
    elif value is not None:
        done["repr"], done["cut"] = _cut(repr(value), min(value_bytes, 16_000))
        try:
            text = _encode(value)
        except (TypeError, ValueError, RecursionError):
            done["value"] = None
        else:
            fits = len(text.encode("utf-8", "replace")) <= value_bytes
            done["value"], done["cut"] = (text, done["cut"]) if fits else (None, True)
    return json.dumps(done, ensure_ascii=False)


def _compile(code):
    global _runs
    _runs += 1
    name = f"<run {_runs}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    linecache.cache.pop(f"<run {_runs - _kept_sources}>", None)
    runner = CodeRunner(code, filename=name, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    runner.ast = ast.fix_missing_locations(_LenientAwait().visit(runner.ast))
    return runner.compile()


def _evaluate(code):
    """Run user code to its end and give the value of its last expression."""
    runner = _compile(code)
    _namespace.update(_names())
    if runner.code.co_flags & inspect.CO_COROUTINE:
        return run_sync(runner.run_async(_namespace))
    return runner.run(_namespace)


async def _stop_tasks():
    """Cancel what the run left behind; give how many did not stop."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if not tasks:
        return 0
    for task in tasks:
        task.cancel()
    _, alive = await asyncio.wait(tasks, timeout=0.1)
    return len(alive)


def _execute(run, code, value_bytes, argument_bytes):
    """Run one program; give the line that reports it."""
    _run.set(run)
    _bridge.argument_bytes = argument_bytes
    value = error = None
    try:
        value = _evaluate(code)
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            error = leaving
    except BaseException as raised:
        error = raised
    left_over = run_sync(_stop_tasks()) if asyncio.all_tasks(asyncio.get_event_loop()) else 0
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    try:
        return _report(run, value_bytes, value=value, error=error, left_over=left_over)
    except BaseException as raised:
        return _report(run, value_bytes, error=raised, left_over=left_over)


def _names():
    devices = Path("devices")
    return {
        "devices": devices,
        "device_manager": devices,
        "device": Path("device"),
        "asyncio": asyncio,
        "SkillError": SkillError,
        **{error.__name__: error for error in _ERRORS.values()},
        "__settle": _settle,
    }


def start(send, call, call_now):
    """Store the bridge, leave nothing of the host reachable by import, and return the function that runs."""
    _bridge.send, _bridge.call, _bridge.call_now = send, call, call_now
    for name in [name for name in sys.modules if name.partition(".")[0] in ("js", "pyodide_js")]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if "JsFinder" not in type(finder).__name__]
    os.environ.clear()
    # An image freezes the state of the generator: without this, every process draws the same numbers.
    random.seed()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    _namespace.update(__name__="__main__", __builtins__=__builtins__)
    return _execute
