"""A guard for network services: it serves each request with the permissions and within the limits of its caller."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Literal, NamedTuple

import trio

from headway.access._audit import Audit, host_of
from headway.access._authorizer import LEASE, TOPIC, Authorizer, Identity
from headway.access._counted import category_of, has_places, places_of
from headway.access._limiter import Counted, Exceeded
from headway.access._login import Login
from headway.access._policy import ANY, Verb
from headway.access._tokens import REFUSED
from headway.api import Api, Call, Duplex, Handler, Method, ProgramFailed, stream
from headway.base import CALLER, function_text, repr_text
from headway.errors import (
    Conflict,
    HeadwayError,
    PayloadError,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from headway.events import ignore
from headway.resource import Need, Registry, Resource, ResourceId, Scope, TypeName, redact_error
from headway.service import AccessChecks, Decision, admit_announced, announced_in, authorizer_failed

# A service checks only that the caller may write or list. The called method determines the verb.
_WRITES: dict[str, Verb] = {"WriteStatus": "write_status"}
_LISTS: dict[str, Verb] = {"WatchList": "watch"}
_ACQUIRE = "/headway.lease.v1.LeaseService/Acquire"

# The error of a method when the caller's rights have changed, if it is not Unavailable. Subscribers of Consul take its
# status, ABORTED, to mean that they must reset their state and subscribe again.
_CHANGED: dict[str, type[HeadwayError]] = {"/headway.subscribe.v1.SubscribeService/Subscribe": Conflict}

CHANGED = "your permissions have changed: retry"
"""The message for a caller whose token is still valid, if the policies change during a call."""


NO_TOKEN_SENT = "no token was sent"
"""The end of a refusal for a caller without a token, who may have forgotten it."""

_AGAIN = 5.0
"""The seconds after which a caller with too many open streams is told to try again."""


class Caller:
    """The caller of one request, as seen by a service.

    Its permissions depend on the content of a resource only if the type has a `headway.Hooks.needs`.
    """

    def __init__(self, identity: Identity, method: str, registry: Registry) -> None:
        self._identity = identity
        self._write_verb = _WRITES.get(method, "write")
        self._list_verb = _LISTS.get(method, "list")
        self._registry = registry
        self.name_prefix = ""
        """The name prefix of a list request, which is known once the request has been received."""

    def may_read(self, id: ResourceId, resource: Resource[Any] | None = None) -> Decision:
        """Return ALLOWED if the caller may read this resource, else DENIED, or NEEDS_RESOURCE to decide by its data."""
        if not self._identity.allows("read", id.type, id.partition, id.namespace, id.name):
            return Decision.DENIED
        if self._needs(id.type) is None or self._identity.reads_everything():
            return Decision.ALLOWED
        if resource is None:
            return Decision.NEEDS_RESOURCE
        return Decision.ALLOWED if self._has_needs("read", resource) else Decision.DENIED

    def may_write(self, id: ResourceId, resource: Resource[Any] | None = None) -> bool:
        """Return True if the caller may write this resource, or its status, depending on the called method."""
        if not self._identity.allows(self._write_verb, id.type, id.partition, id.namespace, id.name):
            return False
        return resource is None or self._has_needs("write", resource)

    def _needs(self, type: TypeName) -> Callable[[Any, Any], Iterable[Need]] | None:
        """Return the function that says which other rights the content of a resource asks for, if there is one."""
        found = self._registry.find(type)
        return None if found is None else found.hooks.needs

    def _has_needs(self, verb: Literal["read", "write"], resource: Resource[Any]) -> bool:
        """Return True if the caller has the rights that the content of a resource asks for."""
        allows, needs = self._identity.allows, self._needs(resource.type.name)
        try:
            for needed, id in needs(verb, resource) if needs is not None else ():
                # An unknown verb would be denied, and the caller told to ask for a rule that cannot exist.
                if needed not in ("read", "write"):
                    raise ValueError(f"the verb of a headway.Need must be 'read' or 'write', not {repr_text(needed)}")
                if not allows(needed, id.type, id.partition, id.namespace, id.name):
                    return False
            return True
        except (ProgramFailed, PayloadError):
            raise
        except Exception as error:
            # The text of the error may contain what the caller must not know.
            redact_error(error, [resource])
            error.add_note(f"raised by the needs hook {function_text(needs)} of {resource.type.name}")
            raise ProgramFailed(f"the needs hook of {resource.type.name} failed", error) from error

    def may_delete(self, id: ResourceId) -> bool:
        """Return True if the caller may delete this resource or mark it for deletion."""
        return self._identity.allows("delete", id.type, id.partition, id.namespace, id.name)

    def may_know(self, type: TypeName) -> bool:
        """Return True if the caller has any permission on the type, so that it may be described to them."""
        return self._identity.concerns(type)

    def may_ask(self, type: TypeName) -> bool:
        """Return True if the caller may make calls for resources of the type."""
        return self._identity.may_ask(type)

    def may_list(self, type: TypeName, partition: str, namespace: str) -> bool:
        """Return True if the caller may list (or watch, if called) this scope, and may read any part of it.

        Without the second condition, the answer would always be empty.
        """
        return self._may_show(self._list_verb, type, *self._units(type, partition, namespace), self.name_prefix)

    def may_watch(self, type: TypeName, partition: str, namespace: str, name_prefix: str) -> bool:
        """Return True if the caller may watch this scope, and may read any part of it."""
        return self._may_show("watch", type, *self._units(type, partition, namespace), name_prefix)

    def _units(self, type: TypeName, partition: str, namespace: str) -> tuple[str, str]:
        """Return a tenancy as rules have it: a unit that the type lacks matches any in a store, but is empty there."""
        scope = self._registry.resolve(type).scope
        if scope is Scope.CLUSTER:
            return "", ""
        if scope is Scope.PARTITION and namespace == ANY:
            return partition, ""
        return partition, namespace

    @property
    def caller(self) -> str:
        """The public name of the caller's token; empty for anonymous callers, who share one."""
        return self._identity.account

    def may_observe(self, id: ResourceId) -> bool:
        """Return True if the caller may ask why this resource is not done."""
        return self._identity.allows("observe", id.type, id.partition, id.namespace, id.name)

    def may_observe_all(self, type: TypeName) -> bool:
        """Return True if the caller may ask this about every resource of the type."""
        return self._identity.allows("observe", type, *self._units(type, ANY, ANY), "")

    @property
    def caller_name(self) -> str:
        """The caller as the journal names it: ``token ada``, ``login ci/ada``, or ``anonymous``."""
        identity = self._identity
        if identity.token is None:
            return identity.name
        return f"{'login' if isinstance(identity.token, Login) else 'token'} {identity.name}"

    def rights(self) -> str:
        """Return a digest of the caller's policies."""
        return self._identity.rights_digest()

    def rights_to_read(self, type: TypeName) -> str:
        """Return a digest of what the caller may read of the type."""
        if self._needs(type) is not None:
            # Which resources are visible depends on the rules about other types, too.
            return self._identity.rights_digest()
        return self._identity.reading_digest(type)

    def may_follow(self, topic: str, subject: str) -> bool:
        """Return True if the caller may watch the subject of a topic, or all of them for ``*``, and read any of it."""
        return self._may_show("watch", TOPIC, "", "", f"{topic}/{'' if subject == ANY else subject}")

    def may_know_topic(self, topic: str) -> bool:
        """Return True if the caller may read any subject of the topic, so that its events may be described to them."""
        return self._identity.allows_any("read", TOPIC, "", "", f"{topic}/")

    def may_see(self, topic: str, subject: str) -> bool:
        """Return True if the caller may read the events of this subject."""
        return self._identity.allows("read", TOPIC, "", "", f"{topic}/{subject}")

    def may_take_lease(self, name: str) -> bool:
        """Return True if the caller may write the lease: acquire and release it, and raise its fence."""
        return self._identity.allows("write", LEASE, "", "", name)

    def may_list_leases(self, name_prefix: str) -> bool:
        """Return True if the caller may list the leases with this prefix, and may read any of them."""
        return self._may_show("list", LEASE, "", "", name_prefix)

    def may_read_lease(self, name: str) -> bool:
        """Return True if a list may show the lease to the caller."""
        return self._identity.allows("read", LEASE, "", "", name)

    def _may_show(self, verb: Verb, type: TypeName, partition: str, namespace: str, name_prefix: str) -> bool:
        identity, scope = self._identity, (type, partition, namespace, name_prefix)
        return identity.allows(verb, *scope) and identity.allows_any("read", *scope)


class Guarded:
    """The handlers of a service, with a new service for the caller of each request.

    An invalid token is refused before anything else, with UNAUTHENTICATED. Once the caller's identity has ended,
    nothing more is sent, because an answer filtered by it may lack too much. A stream then ends: over a network at
    once, and in-process before it would send the next item. Its error is Unauthenticated if the token is no longer
    valid. Otherwise it is Unavailable, because the caller only has to retry, or Conflict for a subscription.

    Args:
        serve: creates the service for a caller. It is called once per request, so it should do little work.
        authorizer: identifies the callers.
        registry: the types that the service serves.
        audit: reports failed authentications, denied calls and limited ones.
        serves_strangers: False for a service that refuses every caller without a token.
    """

    def __init__(
        self,
        serve: Callable[[Caller], Api],
        authorizer: Authorizer,
        registry: Registry,
        audit: Audit | None = None,
        *,
        serves_strangers: bool = True,
    ) -> None:
        self._serves_strangers = serves_strangers
        self._audit = audit or Audit(ignore)
        self._serve = serve
        self._authorizer = authorizer
        self._registry = registry

    def __mapping__(self) -> dict[str, Handler]:
        """Return the service's own handlers, wrapped by the guard."""
        service = self._serve(Caller(self._authorizer.identify({}), "", self._registry))
        return {path: self._guarded(path, each) for path, each in service.methods.items()}

    def _guarded(self, path: str, method: Method) -> Handler:
        streams = method.cardinality.server_streaming

        @asynccontextmanager
        async def admit(call: Call) -> AsyncGenerator[None, None]:
            identity = await self._identified_at_first(path, call)
            account = host_of(call) if identity.token is None else identity.account
            CALLER.set(account)
            caller = Caller(identity, path.rpartition("/")[2], self._registry)
            # Both refer to the call. Without the end of the block, its request would stay until a collection.
            try:
                admitted = call.admitted = _Admitted(identity, caller, account, self._limit(identity, path, call))

                def announce(announced: Any) -> None:
                    # An invalid request counts, because it takes time to read. So does one that is refused anyway.
                    with self._explaining(path, method, call):
                        admitted.count(announced)
                        admit_announced(AccessChecks(caller, self._registry), announced)

                def before_decoding(cls: type[Any], body: bytes) -> None:
                    if (announced := announced_in(cls, body)) is not None:
                        announce(announced)

                with self._explaining(path, method, call):
                    if identity.token is None and not self._serves_strangers:
                        raise PermissionDenied("permission denied: this service needs a token")
                with self._ending(path, call) if streams and call.encodes else nullcontext():
                    if call.announced is None:
                        call.before_decoding = before_decoding
                    else:
                        announce(call.announced)
                    yield
            finally:
                call.admitted = call.before_decoding = None

        def begin(call: Call, request: Any) -> Any:
            return getattr(self._serve(call.admitted.caller), method.name)(call, request)

        def counted(call: Call, request: Any) -> Any:
            admitted: _Admitted = call.admitted
            admitted.count(request)
            admitted.caller.name_prefix = getattr(request, "name_prefix", "")
            return begin(call, request)

        async def answer(call: Call, request: Any) -> Any:
            with self._explaining(path, method, call):
                reply = await counted(call, request)
                if not method.effect:
                    self._check(path, call)
                return reply

        @stream
        async def send(call: Call, request: Any) -> AsyncGenerator[Any, None]:
            with self._explaining(path, method, call):
                async with counted(call, request) as items:
                    async for item in items:
                        self._check(path, call)
                        yield item

        async def exchange(call: Call, both: Duplex) -> None:
            with self._explaining(path, method, call):
                await begin(call, _Checked(both, partial(self._check, path, call), call.admitted.count))

        function: Callable[[Any, Any], Any] = send if streams else answer
        if method.cardinality.client_streaming:
            function = exchange
        return Handler(function, method.cardinality, method.request_type, method.reply_type, admit)

    @contextmanager
    def _explaining(self, path: str, method: Method, call: Call) -> Iterator[None]:
        """Report a denied call, and say what its caller may lack."""
        try:
            yield
        except Unauthenticated:
            raise
        except PermissionDenied as error:
            identity = call.admitted.identity
            if (path == _ACQUIRE or not method.effect) and self._has_changed(call):
                # The call began with the earlier rights, such as one that has waited for a lease. It has had no
                # effect and may be repeated, also an Acquire. A write may not: it would count as unknown.
                raise _CHANGED.get(path, Unavailable)(CHANGED) from None
            self._audit.denied(identity, path, call)
            unsent = NO_TOKEN_SENT if identity.token is None else None
            added = [each for each in (identity.missing(), unsent) if each is not None]
            if not added:
                raise
            raise PermissionDenied(": ".join([str(error), *added])) from None

    def _limit(self, identity: Identity, path: str, served: Call) -> Callable[[Any], None] | None:
        """Return a function that counts the call when its request is known, or None if no limit can apply.

        Both this method and the function raise the error of a limit that refuses the call. The handler has not begun
        then, and has not received the request.
        """
        limiter, category = self._authorizer.limiter, category_of(path)
        if not limiter or category is None:
            return None
        anonymous = identity.token is None
        call = Counted(category, host_of(served) if anonymous else identity.account, anonymous, identity.policies)

        def refuse(exceeded: Exceeded | None) -> None:
            if exceeded is not None:
                self._audit.limited(exceeded, call, identity, path, served)
                raise RateLimited(exceeded.message(), exceeded.seconds)

        def count(request: Any) -> None:
            places = places_of(request, self._registry) if has_places(path) else (("", ""),)
            located = [call._replace(partition=partition, namespace=namespace) for partition, namespace in places]
            refuse(limiter.spend(located, trio.current_time()))

        refuse(limiter.refuses(call, trio.current_time()))
        return count

    async def _identified_at_first(self, path: str, call: Call) -> Identity:
        try:
            await self._authorizer.wait_for_keys(call.metadata)
            return self._authorizer.identify(call.metadata)
        except Unauthenticated:
            self._audit.failed(self._authorizer, path, call)
            raise
        except Exception as error:
            raise authorizer_failed(error) from error

    def _identify_again(self, call: Call) -> None:
        try:
            self._authorizer.identify(call.metadata)
        except Unauthenticated:
            raise
        except Exception as error:
            raise authorizer_failed(error) from error

    def _check(self, path: str, call: Call) -> None:
        """Raise Unauthenticated, or an error that says to retry, if the caller's identity has ended."""
        if not call.admitted.identity.is_current():
            self._identify_again(call)
            raise _CHANGED.get(path, Unavailable)(CHANGED)

    def _has_changed(self, call: Call) -> bool:
        """Return True if the caller's token is still valid, but has other policies than at the start of the call."""
        if call.admitted.identity.is_current():
            return False
        with suppress(Unauthenticated):
            self._identify_again(call)
            return True
        return False

    @contextmanager
    def _one_of(self, caller: str) -> Iterator[None]:
        """Count an open stream of a caller while the block runs. Refuse it if the caller has too many."""
        streams, most = self._authorizer.streams, self._authorizer.max_streams
        if streams[caller] >= most:
            raise RateLimited(f"you have {most} streams open on this server: end one first", _AGAIN)
        streams[caller] += 1
        try:
            yield
        finally:
            streams[caller] -= 1
            if not streams[caller]:
                del streams[caller]

    @contextmanager
    def _ending(self, path: str, call: Call) -> Iterator[None]:
        """Count a stream that may be quiet for long, and end it when its caller's identity ends.

        Within the process only its reader pays for it, and it is checked before each item.
        """
        admitted: _Admitted = call.admitted

        def ended() -> None:
            try:
                self._check(path, call)
            except HeadwayError as error:
                call.end_after(call.apart, error)

        with self._one_of(admitted.account):
            # Nothing is sent in between.
            unfollow = self._authorizer.follow(admitted.identity, ended)
            call.end_after(admitted.identity.expires_in() + call.apart, Unauthenticated(REFUSED))
            try:
                yield
            finally:
                unfollow()


class _Checked(NamedTuple):
    """A stream in both directions that is counted by its first message, and stops when its caller's identity ends."""

    both: Duplex
    check: Callable[[], None]
    counting: Callable[[Any], None]

    async def recv_message(self) -> Any:
        message = await self.both.recv_message()
        self.counting(message)
        return message

    async def send_message(self, message: Any) -> None:
        self.check()
        await self.both.send_message(message)


class _Admitted:
    """What is known of a caller before the request is received."""

    __slots__ = ("_count", "account", "caller", "identity")

    def __init__(self, identity: Identity, caller: Caller, account: str, count: Callable[[Any], None] | None) -> None:
        self.identity, self.caller, self.account = identity, caller, account
        # None if the call is not limited, or has been counted.
        self._count = count

    def count(self, request: Any) -> None:
        """Count the call by its request, or by what is known of that, unless it was counted before."""
        if self._count is not None:
            count, self._count = self._count, None
            count(request)
