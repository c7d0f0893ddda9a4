"""A service for the network: each request is served as its caller may be, by what its metadata says of who that is."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from grpclib import GRPCError
from grpclib.const import Handler, Status

from headway.access._audit import Audit
from headway.access._authorizer import LEASE, Authorizer, Identity
from headway.access._policy import ANY, Verb
from headway.access._tokens import REFUSED
from headway.errors import PermissionDenied
from headway.events import ignore
from headway.resource import Registry, ResourceId, Scope, TypeName
from headway.rpc import HandlerFault
from headway.service import AUTHORIZER_FAILED, NOTHING_WRITTEN, Decision

# The service asks whether something may be written or listed; the method that was called tells which verb that is.
_WRITES: dict[str, Verb] = {"WriteStatus": "write_status"}
_LISTS: dict[str, Verb] = {"WatchList": "watch"}
# What these have done is done: their reply, whatever has happened meanwhile, is the only word of it.
_DONE = ("Write", "WriteStatus", "Delete", "Acquire", "KeepAlive", "Release", "Raise", "RecordSettled", "Migrate")

CHANGED = "what you may do here has changed: ask again"
"""What is told to a caller whose token still holds, in the middle of what was begun under other policies."""


class Caller:
    """The caller of one request, as a service asks about them. Nothing depends on what a resource says."""

    def __init__(self, identity: Identity, method: str, registry: Registry) -> None:
        self._identity = identity
        self._write_verb = _WRITES.get(method, "write")
        self._list_verb = _LISTS.get(method, "list")
        self._registry = registry
        self.name_prefix = ""
        """What a list's request says of names; known once the request has been received."""

    def may_read(self, id: ResourceId, resource: object = None) -> Decision:  # noqa: ARG002  # the service's signature
        """Whether this resource may be read."""
        allowed = self._identity.allows("read", id.type, id.partition, id.namespace, id.name)
        return Decision.ALLOWED if allowed else Decision.DENIED

    def may_write(self, id: ResourceId, resource: object = None) -> bool:  # noqa: ARG002  # likewise
        """Whether this resource may be written, or its status, whichever was called."""
        return self._identity.allows(self._write_verb, id.type, id.partition, id.namespace, id.name)

    def may_delete(self, id: ResourceId) -> bool:
        """Whether this resource may be deleted, or marked for deletion."""
        return self._identity.allows("delete", id.type, id.partition, id.namespace, id.name)

    def may_know(self, type: TypeName) -> bool:
        """Whether the type may be described: to who may do anything with it."""
        return self._identity.concerns(type)

    def may_list(self, type: TypeName, partition: str, namespace: str) -> bool:
        """Return True if this scope may be listed, or watched, whichever was called, and any of it be read.

        Without the second, the answer would be empty whatever there is.
        """
        scope = self._registry.resolve(type).scope
        # To a store the units that a type doesn't have are any; to a rule they are none.
        if scope is Scope.CLUSTER:
            partition = namespace = ""
        elif scope is Scope.PARTITION and namespace == ANY:
            namespace = ""
        return self._may_show(self._list_verb, type, partition, namespace, self.name_prefix)

    def may_take_lease(self, name: str) -> bool:
        """Whether the lease may be taken and left, and the fence that it governs be raised: all that is to write it."""
        return self._identity.allows("write", LEASE, "", "", name)

    def may_list_leases(self, name_prefix: str) -> bool:
        """Return True if the leases whose names begin so may be listed, and any of them be read."""
        return self._may_show("list", LEASE, "", "", name_prefix)

    def may_read_lease(self, name: str) -> bool:
        """Whether the lease may be found in a list."""
        return self._identity.allows("read", LEASE, "", "", name)

    def _may_show(self, verb: Verb, type: TypeName, partition: str, namespace: str, name_prefix: str) -> bool:
        identity, scope = self._identity, (type, partition, namespace, name_prefix)
        return identity.allows(verb, *scope) and identity.allows_any("read", *scope)


class Guarded:
    """The handlers of a service, each call of which is served by a service made for its caller.

    A token that doesn't hold is refused before anything else: UNAUTHENTICATED. Once the caller's identity has ended
    nothing is told any more: what was filtered by it may lack more than it should. A stream ends then, over a network
    at once and in the process before the next thing it would send; with the same status where the token holds no
    longer, and with UNAVAILABLE where it does, as the caller has only to ask again.

    Args:
        serve: makes the service for a caller; called once a request, so it should take what it needs ready-made.
        authorizer: says who the callers are.
        registry: the types that the service serves.
        audit: reports failed authentications and denied calls.
    """

    def __init__(
        self,
        serve: Callable[[Caller], Any],
        authorizer: Authorizer,
        registry: Registry,
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit or Audit(ignore)
        self._serve = serve
        self._authorizer = authorizer
        self._registry = registry

    def __mapping__(self) -> dict[str, Handler]:
        """The service's own handlers, behind the guard."""
        nobody = Caller(self._authorizer.identify({}), "", self._registry)
        handlers: dict[str, Handler] = self._serve(nobody).__mapping__()
        return {path: handler._replace(func=self._guarded(path, handler)) for path, handler in handlers.items()}

    def _guarded(self, path: str, handler: Handler) -> Callable[[Any], Awaitable[None]]:
        method = path.rpartition("/")[2]

        async def serve(stream: Any) -> None:
            identity = self._admitted(path, stream)
            caller = Caller(identity, method, self._registry)
            check = _nothing if method in _DONE else functools.partial(self._check, identity, stream)
            guarded = _Stream(stream, caller, check)
            function = self._serve(caller).__mapping__()[path].func
            try:
                if handler.cardinality.server_streaming and hasattr(stream, "end_after"):
                    await self._until_ended(function(guarded), identity, stream)
                else:
                    await function(guarded)
            except GRPCError as error:
                if error.status is not Status.PERMISSION_DENIED:
                    raise
                self._audit.denied(identity, path, stream)
                missing = identity.missing()
                if missing is None:
                    raise
                raise GRPCError(error.status, f"{error.message}: {missing}", error.details) from None

        return serve

    def _admitted(self, path: str, stream: Any) -> Identity:
        try:
            return self._authorizer.identify(stream.metadata)
        except PermissionDenied as error:
            self._audit.failed(self._authorizer, path, stream)
            raise GRPCError(Status.UNAUTHENTICATED, str(error)) from None
        except Exception as error:
            # Nothing has been asked of the service yet.
            mark = NOTHING_WRITTEN if path.rpartition("/")[2] in _DONE else ""
            raise HandlerFault(mark + AUTHORIZER_FAILED, error) from error

    def _identified(self, stream: Any) -> Identity:
        try:
            return self._authorizer.identify(stream.metadata)
        except PermissionDenied as error:
            raise GRPCError(Status.UNAUTHENTICATED, str(error)) from None

    def _check(self, identity: Identity, stream: Any) -> None:
        """Raise what a caller is told whose identity has ended."""
        if not identity.is_current():
            self._identified(stream)
            raise GRPCError(Status.UNAVAILABLE, CHANGED)

    async def _until_ended(self, answer: Awaitable[None], identity: Identity, stream: Any) -> None:
        """Answer a stream that may be quiet for long, and end it when the caller's identity ends."""

        def ended() -> None:
            try:
                self._check(identity, stream)
            except GRPCError as error:
                stream.end_after(0, error)

        unfollow = self._authorizer.follow(identity, ended)
        stream.end_after(identity.expires_in(), GRPCError(Status.UNAUTHENTICATED, REFUSED))
        try:
            await answer
        finally:
            unfollow()


def _nothing() -> None:
    """What is checked before an answer that is told in any case."""


class _Stream:
    """A handler's stream, that lets nothing out to a caller whose identity has ended."""

    __slots__ = ("_caller", "_check", "_stream")

    def __init__(self, stream: Any, caller: Caller, check: Callable[[], None]) -> None:
        self._stream = stream
        self._caller = caller
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def recv_message(self) -> Any:
        request = await self._stream.recv_message()
        self._caller.name_prefix = getattr(request, "name_prefix", "")
        return request

    def send_message(self, message: object) -> Awaitable[None]:
        # No coroutine of its own: what carries a stream inside the process counts on what it awaits here.
        self._check()
        sent: Awaitable[None] = self._stream.send_message(message)
        return sent
