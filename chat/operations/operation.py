"""Declarations of operations: a typed function, and beside it what its faces need."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from types import UnionType
from typing import (
    Annotated,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, create_model
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict, Unpack

from chat.http.streams import STREAMS
from contracts.claims import SCOPES, Scope
from contracts.wire import Strict

P = ParamSpec("P")
Service = TypeVar("Service")
AskerT = TypeVar("AskerT")
Answer = TypeVar("Answer", covariant=True)

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
_IN_QUERY: Final = ("GET", "DELETE")


@dataclass(frozen=True)
class Needs:
    """Requirements on the caller of an operation.

    Attributes:
        scopes: The token has one of these.
        devices: Whether a device may ask, too; most answers are for people alone.
        people: Whether people may ask.
        writes: Whether people with read-only access may not ask.
        admin: Whether an admin's own token or session is needed.
        confirms: Whether only a token may ask through which a person confirms calls.
        password: Whether the password of a session must have been typed in the last minutes.
    """

    scopes: tuple[Scope, ...]
    devices: bool = False
    people: bool = True
    writes: bool = False
    admin: bool = False
    confirms: bool = False
    password: bool = False

    @property
    def label(self) -> str:
        """The right as the documentation names it."""
        names = ["admin"] if self.admin else [f"`{scope}`" for scope in self.scopes]
        is_any = self.scopes == TOKEN.scopes and not self.admin
        words = "any" if is_any else " or ".join(names)
        words += "" if self.people else ", device"
        return words + (", password" if self.password else "") + (", `confirm`" if self.confirms else "")


TOKEN: Final = Needs(tuple(scope for scope in SCOPES if scope != "metrics"), devices=True)
"""Any token but one for metrics, which is for nothing else."""
LOOK: Final = Needs(("chat",))
CALL: Final = Needs(("call",))
CHANGE: Final = Needs(("call",), writes=True)
ADMIN: Final = Needs(("admin",), admin=True)
PASSWORD: Final = Needs(("admin",), admin=True, password=True)


@dataclass(frozen=True)
class Command:
    """The command of an operation below that of its resource.

    Attributes:
        usage: Its name, then its positional arguments: ``stop CAPTURE``. The other parameters are options.
        says: What a person reads of the answer, as a template of its fields; without it, the columns.
        empty: What a person reads where a list is empty.
        asks: What a person is asked before, unless ``--yes`` is given; a template of the parameters.
        columns: Of a table, fields of the answer; by default those of the resource.
    """

    usage: str
    says: str = ""
    empty: str = ""
    asks: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Field:
    """A parameter of an operation that is neither in its path nor its request."""

    name: str
    kind: Any
    default: Any

    @property
    def is_model(self) -> bool:
        return isinstance(self.kind, type) and issubclass(self.kind, BaseModel)


@dataclass(eq=False)
class Operation(Generic[P, Answer]):
    """An ability of the hub; made by the decorators of a `Resource`.

    Its parameters after the service and the one who asks are those that its path names, and the others: those
    come in the query of ``GET`` and ``DELETE``, and in the body of other requests, where a single pydantic
    model is the body itself. One of type `Request` is the request as it came, with the others in its query;
    such an operation has no face but HTTP, and so does one that returns a `Response`.

    Attributes:
        function: Called with the service, the one who asks, and the parameters.
        path: As Starlette writes it.
        status: Of HTTP, where it has an answer.
        skill: The method of a hub's skill that it is, with the flags of `skill_method` at its function.
        is_held: Whether it is cancelled when its client leaves or its token is revoked.
        notes_refusals: Whether its function notes in the audit itself what it refuses.
    """

    function: Callable[..., Any]
    resource: "Resource[Any, Any]"
    method: Method
    path: str
    needs: Needs
    _: KW_ONLY
    status: int = 200
    command: Command | None = None
    skill: str = ""
    is_held: bool = False
    notes_refusals: bool = False

    def __call__(self, service: Any, asking: Any, *args: P.args, **kwargs: P.kwargs) -> Awaitable[Answer]:
        """Call the function itself, with no face in between."""
        made: Awaitable[Answer] = self.function(service, asking, *args, **kwargs)
        return made

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def label(self) -> str:
        return f"{self.method} {self.path}"

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        return get_type_hints(self.function, include_extras=True)

    @property
    def answer(self) -> Any:
        return self.hints["return"]

    @cached_property
    def parts_in_path(self) -> Sequence[str]:
        return [part for part in self.path.split("/") if part.startswith("{")]

    @cached_property
    def in_path(self) -> Sequence[str]:
        return [part.strip("{}").partition(":")[0] for part in self.parts_in_path]

    @cached_property
    def takes_request(self) -> str | None:
        return next((name for name, kind in self.hints.items() if kind is Request), None)

    @cached_property
    def fields(self) -> Sequence[Field]:
        """The parameters in the query or the body."""
        _, _, *parameters = inspect.signature(self.function).parameters.values()
        return [
            Field(each.name, self.hints[each.name], each.default)
            for each in parameters
            if each.name not in self.in_path and each.name != self.takes_request
        ]

    @property
    def is_in_query(self) -> bool:
        return self.method in _IN_QUERY or self.takes_request is not None

    @cached_property
    def body(self) -> type[BaseModel] | None:
        """The model of the body or the query: that of the only field, or one of all fields."""
        if len(self.fields) == 1 and self.fields[0].is_model:
            kind: type[BaseModel] = self.fields[0].kind
            return kind
        if not self.fields:
            return None
        name = "".join(
            word.capitalize() for word in f"{self.resource.name}-{self.name}".replace("-", "_").split("_")
        )
        given: Any = {
            each.name: (each.kind, ... if each.default is inspect.Parameter.empty else each.default)
            for each in self.fields
        }
        return create_model(name, __base__=Strict, __doc__="", **given)

    @property
    def may_be_empty(self) -> bool:
        # A body that is a model of its own is always required.
        return all(not each.is_model and each.default is not inspect.Parameter.empty for each in self.fields)

    def arguments(self, body: BaseModel | None) -> dict[str, Any]:
        """Return the arguments of the fields."""
        if body is None:
            return {}
        if len(self.fields) == 1 and self.fields[0].is_model:
            return {self.fields[0].name: body}
        return {each.name: getattr(body, each.name) for each in self.fields}

    @property
    def is_raw(self) -> bool:
        """Return whether it answers with a response of its own."""
        kind = self.answer
        while get_origin(kind) in (Annotated, Union, UnionType):
            kind = get_args(kind)[0]
        kind = get_origin(kind) or kind
        return isinstance(kind, type) and issubclass(kind, Response)


class Stream(Operation[P, Answer]):
    """An operation that yields answers until its client leaves.

    Its function checks what it is given, then returns an iterator. Over HTTP they are server-sent events;
    None is a sign of life for proxies.

    Attributes:
        ids: The field of an answer that is the id of its event. A client that comes back names the last one
            in ``Last-Event-ID``, which then is the parameter ``after``.
        switch: The parameter with which a request asks for the stream, and not for the operation of the same
            path; without one, that is asked by ``Accept: text/event-stream``.
        marks_end: Whether ``[DONE]`` follows its last answer, which tells its end from a lost connection.
        most: How many a token has open at once.
    """

    ids: str = ""
    switch: str = ""
    marks_end: bool = False
    most: int = STREAMS

    @property
    def answer(self) -> Any:
        """Return the type of what it yields."""
        (kind,) = get_args(super().answer)
        return next(each for each in get_args(kind) or (kind,) if each is not type(None))


class Options(TypedDict, total=False):
    """What a declaration may add; see `Operation`."""

    status: int
    command: Command
    skill: str
    is_held: bool
    notes_refusals: bool


class StreamOptions(TypedDict, total=False):
    """What the declaration of a stream may add; see `Stream`."""

    ids: str
    switch: str
    marks_end: bool
    most: int


@dataclass(frozen=True)
class Declaration(Generic[Service, AskerT]):
    """The decorator of an operation's function."""

    resource: "Resource[Service, AskerT]"
    method: Method
    needs: Needs
    path: str
    options: Options

    def __call__(
        self, function: Callable[Concatenate[Service, AskerT, P], Awaitable[Answer]]
    ) -> Operation[P, Answer]:
        """Make the operation."""
        path = self.resource.path + self.path
        made: Operation[P, Answer] = Operation(
            function, self.resource, self.method, path, self.needs, **self.options
        )
        self.resource.operations.append(made)
        return made


@dataclass(frozen=True)
class StreamDeclaration(Generic[Service, AskerT]):
    """The decorator of a stream's function."""

    resource: "Resource[Service, AskerT]"
    method: Method
    needs: Needs
    path: str
    options: StreamOptions

    def __call__(
        self, function: Callable[Concatenate[Service, AskerT, P], Awaitable[AsyncIterator[Answer | None]]]
    ) -> Stream[P, Answer]:
        """Make the stream."""
        path = self.resource.path + self.path
        made: Stream[P, Answer] = Stream(function, self.resource, self.method, path, self.needs)
        vars(made).update(self.options)
        self.resource.operations.append(made)
        return made


class Resource(Generic[Service, AskerT]):
    """A kind of thing, and the operations on it.

    Args:
        name: Of its command and of its section in the documentation.
        path: Of all of them: ``/api/captures``.
        columns: Fields of an answer that a table shows.
    """

    def __init__(self, name: str, path: str, *, columns: tuple[str, ...] = ()) -> None:
        self.name = name
        self.path = path
        self.columns = columns
        self.operations: list[Operation[Any, Any]] = []

    def get(self, needs: Needs, path: str = "", **more: Unpack[Options]) -> Declaration[Service, AskerT]:
        return Declaration(self, "GET", needs, path, more)

    def post(self, needs: Needs, path: str = "", **more: Unpack[Options]) -> Declaration[Service, AskerT]:
        return Declaration(self, "POST", needs, path, more)

    def put(self, needs: Needs, path: str = "", **more: Unpack[Options]) -> Declaration[Service, AskerT]:
        return Declaration(self, "PUT", needs, path, more)

    def patch(self, needs: Needs, path: str = "", **more: Unpack[Options]) -> Declaration[Service, AskerT]:
        return Declaration(self, "PATCH", needs, path, more)

    def delete(self, needs: Needs, path: str = "", **more: Unpack[Options]) -> Declaration[Service, AskerT]:
        return Declaration(self, "DELETE", needs, path, more)

    def stream(
        self, needs: Needs, path: str = "", *, method: Method = "GET", **more: Unpack[StreamOptions]
    ) -> StreamDeclaration[Service, AskerT]:
        return StreamDeclaration(self, method, needs, path, more)
