"""The base of wrappers: services around other services, which act on every call in one place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

from headway.api._call import Call
from headway.api._methods import Handler, Stream


class Mapped(Protocol):
    """A service, or what is around services."""

    def __mapping__(self) -> Mapping[str, Handler]:
        """Return the handlers by path."""
        ...


class Wrapper:
    """A wrapper around a service. Override `unary`, `streaming`, or both::

        class Counting(Wrapper):
            def __init__(self, inner, counts):
                super().__init__(inner)
                self.counts = counts

            async def unary(self, path, answer, call, request):
                self.counts[path] += 1
                return await answer(call, request)

    An engine has a wrapper around each service, also for Consul's names, and once more for the network. So keep what
    they share outside. Calls with a stream in each direction pass through.
    """

    def __init__(self, inner: Mapped) -> None:
        self._inner = inner

    async def unary(self, path: str, answer: Callable[[Call, Any], Awaitable[Any]], call: Call, request: Any) -> Any:  # noqa: ARG002  # for subclasses
        """Answer a unary call, usually by ``await answer(call, request)``."""
        return await answer(call, request)

    def streaming(self, path: str, opened: Callable[[Call, Any], Stream[Any]], call: Call, request: Any) -> Stream[Any]:  # noqa: ARG002  # for subclasses
        """Return the stream of a call, usually ``opened(call, request)``."""
        return opened(call, request)

    def __mapping__(self) -> Mapping[str, Handler]:
        """Return the handlers by path."""
        return {path: self._around(path, each) for path, each in self._inner.__mapping__().items()}

    def _around(self, path: str, handler: Handler) -> Handler:
        if handler.cardinality.client_streaming:
            return handler
        around = self._streaming if handler.cardinality.server_streaming else self.unary
        return handler._replace(func=partial(around, path, handler.func))

    def _streaming(self, path: str, func: Callable[[Call, Any], Stream[Any]], call: Call, request: Any) -> Stream[Any]:
        inner: list[Stream[Any]] = []

        def opened(call: Call, request: Any) -> Stream[Any]:
            inner.append(func(call, request))
            return inner[-1]

        outer = self.streaming(path, opened, call, request)
        call.wrapped = call.wrapped or not any(outer is each for each in inner)
        return outer
