"""The methods of a service: how many messages go each way, and the function that answers."""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from functools import wraps
from inspect import isasyncgenfunction
from typing import Any, ClassVar, NamedTuple, ParamSpec, Protocol, Self, TypeAlias, TypeVar, cast

from headway.api._call import Call
from headway.api._channel import Channel
from headway.errors import DeclarationError

T = TypeVar("T")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

Stream: TypeAlias = AbstractAsyncContextManager[AsyncIterator[T]]
"""The items that a service sends: ``async with api.watch_list(call, request) as items: async for item in items: ...``

It runs in its reader's task, as far as the reader asks for items.
"""


def stream(function: Callable[P, AsyncGenerator[T, None]]) -> Callable[P, Stream[T]]:
    """Make a `Stream` of an async generator, which yields outside any nursery or cancel scope of its own."""

    @wraps(function)
    def opened(*args: P.args, **kwargs: P.kwargs) -> Stream[T]:
        return aclosing(function(*args, **kwargs))

    return opened


class Duplex(Protocol):
    """A stream in each direction."""

    async def recv_message(self) -> Any:
        """Wait for the caller's next message and return it, or None at the end."""
        ...

    async def send_message(self, message: Any) -> None:
        """Send a message, and wait while the caller doesn't read."""
        ...


class Cardinality(enum.Enum):
    """How many messages a method takes and sends. Each value is a pair: whether requests and replies are streams."""

    UNARY_UNARY = (False, False)
    UNARY_STREAM = (False, True)
    STREAM_STREAM = (True, True)

    @property
    def client_streaming(self) -> bool:
        """True if the caller sends a stream."""
        return self.value[0]

    @property
    def server_streaming(self) -> bool:
        """True if the service sends a stream."""
        return self.value[1]


class Handler(NamedTuple):
    """A method of a service.

    Attributes:
        func: answers a call. ``await func(call, request)`` returns the reply; ``func(call, request)`` is a `Stream` if
            only replies are streamed; ``await func(call, duplex)`` serves streams in both directions.
        cardinality: how many messages go each way.
        request_type: the type of its requests.
        reply_type: the type of its replies.
        admit: a block around the receipt of the request and its answer, which may refuse the call at its beginning;
            None without one.
    """

    func: Callable[[Any, Any], Any]
    cardinality: Cardinality
    request_type: type[Any]
    reply_type: type[Any]
    admit: Callable[[Any], AbstractAsyncContextManager[None]] | None = None


class Method(NamedTuple):
    """A method in the schema.

    Attributes:
        name: the name of the Python method that serves it.
        effect: True if its reply alone says what has happened, so that it is sent whatever has changed since.
    """

    name: str
    cardinality: Cardinality
    request_type: type[Any]
    reply_type: type[Any]
    effect: bool = False


def method(
    name: str,
    request: type[Any],
    reply: type[Any],
    cardinality: Cardinality = Cardinality.UNARY_UNARY,
    *,
    effect: bool = False,
) -> Callable[[F], F]:
    """Declare a method of an `Api` by its name in the schema, and its messages there.

    ``effect`` is True for one that changes something: its caller gets the reply even without the right to it by now.
    """

    def declare(function: F) -> F:
        setattr(function, _DECLARED, (name, Method(function.__name__, cardinality, request, reply, effect)))
        return function

    return declare


_DECLARED = "declared_method"


class Api(Protocol):
    """A service of the schema: a Python method for each of its methods, which takes a `Call` and a request.

    A sub-protocol names the service, as in ``class ResourceApi(Api, Protocol, service="headway.resource.v1...")``, and
    declares its methods. A class that implements it may name another service, under which it serves them.

    Attributes:
        methods: the methods by path.
    """

    methods: ClassVar[Mapping[str, Method]] = {}

    def __init_subclass__(cls, service: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = [declared for each in vars(cls).values() if (declared := getattr(each, _DECLARED, None)) is not None]
        if service is not None:
            named = {path.rpartition("/")[2]: each for path, each in cls.methods.items()} | dict(own)
            cls.methods = {f"/{service}/{name}": each for name, each in named.items()}
        elif own:
            raise DeclarationError(
                f"{cls.__name__} declares methods and names no service: write class {cls.__name__}(..., "
                f"service='example.{cls.__name__}')"
            )
        for each in cls.methods.values():
            if each.cardinality is Cardinality.UNARY_STREAM and isasyncgenfunction(vars(cls).get(each.name)):
                raise DeclarationError(
                    f"{cls.__name__}.{each.name} is a bare async generator: put @headway.api.stream above it"
                )

    @classmethod
    def over(cls, channel: Channel) -> Self:
        """Return the service as a channel reaches it: each method is a call of the channel."""
        return cast("Self", _Over(cls.methods, channel))

    def __mapping__(self) -> Mapping[str, Handler]:
        """Return the handlers by path."""
        return {
            path: Handler(getattr(self, each.name), each.cardinality, each.request_type, each.reply_type)
            for path, each in self.methods.items()
        }


class _Over:
    """The methods of a service, as calls of a channel. Each is made when it is first used."""

    def __init__(self, methods: Mapping[str, Method], channel: Channel) -> None:
        self._methods = methods
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        found = next(((path, each) for path, each in self._methods.items() if each.name == name), None)
        if found is None:
            raise AttributeError(name)
        made = _called(self._channel, *found)
        setattr(self, name, made)
        return made

    def __mapping__(self) -> Mapping[str, Handler]:
        """Return the handlers by path, as `Api` does."""
        return {
            path: Handler(getattr(self, each.name), each.cardinality, each.request_type, each.reply_type)
            for path, each in self._methods.items()
        }


def _called(channel: Channel, path: str, method: Method) -> Callable[[Call, Any], Any]:
    def open_stream(call: Call, request: Any) -> Stream[Any]:
        return channel.stream(path, request, metadata=call.metadata)

    async def answer(call: Call, request: Any) -> Any:
        return await channel.unary(path, request, method.reply_type, metadata=call.metadata)

    if method.cardinality.server_streaming:
        return open_stream
    # Within the process, the method of the service itself. A wrapper that passes on attributes must see each call.
    direct = getattr(type(channel), "direct", None)
    return (None if direct is None else direct(channel, path)) or answer
