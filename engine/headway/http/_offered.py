"""The offer of an HTTP server, and one request for it: its caller, its type and its body."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import trio
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import ClientDisconnect, Request

from headway.access import Authorizer
from headway.api import Code
from headway.errors import InvalidArgument
from headway.http._bounds import HeldReply, RequestLimits, Shares
from headway.http._call import Caller, Failed, Requested, unary
from headway.http._document import Body, decoded
from headway.http._refusal import HttpRefusal, invalid, refusal_of
from headway.resource import Registry, ResourceId, ResourceType, TypeName, did_you_mean, pb, quoted
from headway.rpc import TOKEN_HEADER, Budget, Services, peer_of
from headway.service import POSITION, PositionRequest

# The bytes and the time in seconds for the rest of a refused request.
_DRAINED = 8 << 20
_DRAIN_TIME = 2.0
# The values of a small body.
_SMALL_VALUES = 32
# The characters of a path that are compared with the paths of the types.
_LONGEST_HINT = 200
_TOKENS = (TOKEN_HEADER, "authorization")
_TRACES = ("traceparent", "tracestate")


class Offered(NamedTuple):
    """The services and types that a server offers.

    Attributes:
        services: the services, guarded by ``access`` if it is not None.
        registry: the types.
        access: identifies callers; None if every caller may do everything.
        failed: called with a path and the unexpected error of its handler.
        limits: the limits of requests.
        replies: the budget for the bytes of answers that wait for their clients, which a server of gRPC in the same
            process may share; None makes one.
    """

    services: Services
    registry: Registry
    access: Authorizer | None
    failed: Failed
    limits: RequestLimits = RequestLimits()
    replies: Budget | None = None

    def refusal(self, path: str, error: Exception) -> HttpRefusal:
        """Return the answer for what a call has raised, and report what no service may raise."""
        if isinstance(error, HttpRefusal):
            return error
        found = refusal_of(error)
        if found is None:
            self.failed(path, error)
        return found or HttpRefusal(500, Code.UNKNOWN.name, "Internal Server Error")


class Exchange:
    """A request and the means to answer it.

    Args:
        metadata: identifies the caller, as in gRPC's metadata. By default it is made of the request's headers.

    Attributes:
        offered: what the server offers.
        shares: the bodies and watches of all requests.
        caller: the origin of the request.
        reply: the bytes of its answer.
    """

    def __init__(
        self, offered: Offered, shares: Shares, request: Request, metadata: Mapping[str, str] | None = None
    ) -> None:
        self.offered = offered
        self.shares = shares
        self.request = request
        self.reply = HeldReply(shares.replies)
        # True if the rest of the body did not arrive in time, or will not arrive at all.
        self._given_up = False
        # True once the body is being received.
        self._begun = False
        if metadata is None:
            headers = request.headers
            # As in gRPC's metadata. A token that is sent twice is refused.
            tokens = [(name, given) for name in _TOKENS for given in headers.getlist(name)]
            traces = [(name, ",".join(given)) for name in _TRACES if (given := headers.getlist(name))]
            metadata = ImmutableMultiDict([*tokens, *traces])
        address = request.client
        called = f"{request.method} {request.scope['path']}"
        self.caller = Caller(metadata, None if address is None else (address.host, address.port), called)

    def part(self, name: str) -> str:
        """Return a part of the path, as it was sent: no valid name of a type or a resource has to be encoded."""
        text: str = self.request.path_params[name]
        return text

    def encoded_part(self, name: str) -> str:
        """Return a part of the path that may be encoded, such as ``team%2Frollout``. Raises HttpRefusal."""
        text = self.part(name)
        try:
            return unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise invalid(f"{name} {quoted(text)} is not encoded UTF-8") from None

    @property
    def account(self) -> str:
        """The name under which the watches of an authenticated caller are counted.

        With a token, it is the token's name. Without one, it is the host, or its /64 network of IPv6.

        Raises Unauthenticated if the token is not valid, or no longer.
        """
        access = self.offered.access
        account = "" if access is None else access.identify(self.caller.metadata).account
        return account or self._host

    @property
    def _host(self) -> str:
        return f"host {peer_of(self.caller.address)}"

    async def wait_for_keys(self) -> None:
        """Wait, for a bounded time, if the login of the request names a key of its issuer that is not known yet."""
        if self.offered.access is not None:
            await self.offered.access.wait_for_keys(self.caller.metadata)

    async def call(self, path: str, requested: Requested, announced: Any = None) -> Any:
        """Call a unary method. Raises the errors of the service, and HttpRefusal.

        The reply of a list is `Encoded`, and counts toward the memory for answers; `resources_in` has its resources.

        Args:
            path: the method.
            requested: makes the request's message.
            announced: a message with the id of the request, if making the message takes a body. Limits count the call
                by it, and the caller's right to it is checked, before the body is received.
        """
        offered = self.offered
        return await unary(
            offered.services,
            path,
            self.caller,
            requested,
            offered.failed,
            timeout=offered.limits.answer_timeout,
            reply=self.reply,
            announced=announced,
        )

    async def type(self) -> ResourceType[Any]:
        """Return the type that the path names.

        A caller without any right to the type gets the same answer whether or not it is registered.

        Raises:
            PermissionDenied: the caller's token is invalid, or none of their rules covers the type.
            HttpRefusal: the type is not registered (404).
        """
        group, version, kind = (self.part(name) for name in ("group", "version", "kind"))
        found = _find(self.offered.registry, group, version, kind)
        may_know = self._may_know()
        if found is not None and may_know(found.name):
            return found
        # The kind stays as the caller wrote it: in its registered form it would show that the type is registered.
        name = TypeName(group, version, kind)

        async def requested() -> PositionRequest:
            return PositionRequest(type=name.message())

        with contextlib.suppress(InvalidArgument):
            await self.call(POSITION, requested)
        known = [collection_path(type.name) for type in self.known_types() if type.name.group != "internal"]
        hint = did_you_mean(collection_path(name)[:_LONGEST_HINT], known)
        raise HttpRefusal(
            404, "NOT_FOUND", f"{quoted(self.request.url.path)} not found: no type is registered at this path{hint}"
        )

    def known_types(self, also: TypeName | None = None) -> Registry:
        """Return the types that errors may name to the caller, and a type that the caller has seen already."""
        registry = self.offered.registry
        if self.offered.access is None:
            return registry
        may_know = self._may_know()
        return registry.of_known(lambda name: name == also or may_know(name))

    def _may_know(self) -> Callable[[TypeName], bool]:
        access = self.offered.access
        if access is None:
            return _anything
        try:
            return access.identify(self.caller.metadata).concerns
        except Exception:  # noqa: BLE001  # an authorizer of the program may raise anything
            # The guard of the service refuses the caller, with the reason.
            return _nothing

    @contextlib.asynccontextmanager
    async def body(self, *, small: bool = False) -> AsyncIterator[Body]:
        """Receive the body of the request, as a text of bounded size. Raises HttpRefusal.

        It counts for the caller until the block has ended.

        Args:
            small: True for a body that anyone may send. It may have only a few values, and as many bytes as a head. It
                counts for the host, whether or not the request has a valid token.
        """
        limits = self.offered.limits
        encoding = self.request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", ""):
            raise HttpRefusal(
                415, "INVALID_ARGUMENT", f"content-encoding {quoted(encoding)} is not supported: send the JSON itself"
            )
        size, values, timeout = limits.body_size, limits.values, limits.request_timeout
        if small:
            size, values = min(size, limits.head_size), min(values, _SMALL_VALUES)
            timeout = min(timeout, limits.small_timeout)
        with self.shares.body(self._host if small else self.account) as hold:
            text = None
            with trio.move_on_after(timeout):
                text = decoded(await self._received(size, hold))
            if text is not None:
                yield Body(text, values)
                return
        self._given_up = True
        why = f"the request did not arrive within {timeout:g} s"
        raise HttpRefusal(408, "DEADLINE_EXCEEDED", why, headers={"connection": "close"})

    async def drain(self) -> None:
        """Receive what is left of a refused request, for a moment.

        Closing a connection with unread data resets it, and the client would not get the answer.
        """
        if self._given_up or (not self._begun and "expect" in self.request.headers):
            # The client waits until it is told to send the body, and is refused.
            return
        left = _DRAINED
        with trio.move_on_after(_DRAIN_TIME), contextlib.suppress(ClientDisconnect, RuntimeError):
            async with contextlib.aclosing(self.request.stream()) as pieces:
                async for piece in pieces:
                    left -= len(piece)
                    if left < 0:
                        break

    async def _received(self, most: int, hold: Callable[[int], None]) -> bytes:
        too_large = HttpRefusal(
            413, "RESOURCE_EXHAUSTED", f"the body may have {most} bytes at most", headers={"connection": "close"}
        )
        announced = self.request.headers.get("content-length", "")
        # HTTP's parser has checked that it is a number.
        size = int(announced) if announced.isdecimal() and len(announced) < 20 else most
        if announced and size > most:
            raise too_large
        self._begun = True
        pieces: list[bytes] = []
        received = 0
        try:
            async with contextlib.aclosing(self.request.stream()) as stream:
                async for piece in stream:
                    received += len(piece)
                    if received > most:
                        raise too_large
                    hold(len(piece))
                    pieces.append(piece)
        except ClientDisconnect:
            self._given_up = True
            raise HttpRefusal(400, "CANCELLED", "the connection was lost within the request") from None
        return b"".join(pieces)


class Target(NamedTuple):
    """The resource that a request names.

    Attributes:
        id: its complete id. The uid is empty unless the request gives one.
    """

    type: ResourceType[Any]
    id: ResourceId

    def message(self, uid: str = "") -> pb.Id:
        """Return the id as a message of its own, which a service may complete."""
        return (self.id._replace(uid=uid) if uid else self.id).message()


def collection_path(type: TypeName) -> str:
    """Return the path of the resources of a type."""
    group, version, kind = type
    return f"/api/{group}/{version}/{kind.lower()}"


def _anything(_: TypeName) -> bool:
    return True


def _nothing(_: TypeName) -> bool:
    return False


def _find(registry: Registry, group: str, version: str, kind: str) -> ResourceType[Any] | None:
    """Return the type of a path. Its kind is in lower case, unless that fits several types."""
    named = [
        type
        for type in registry
        if type.name.group == group and type.name.version == version and type.name.kind.lower() == kind.lower()
    ]
    if len(named) == 1:
        return named[0] if kind == kind.lower() else None
    return next((type for type in named if type.name.kind == kind), None)
