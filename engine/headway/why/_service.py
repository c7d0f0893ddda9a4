"""ObserveService: the questions over the network, and the streams of the processes that answer them."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from dataclasses import replace
from typing import Protocol

from typing_extensions import override

from headway._gen.headway.observe import v1 as observe_pb
from headway.api import Call, Exhausted, ObserveApi, stream
from headway.base import give_way
from headway.errors import FailedPrecondition, InvalidArgument, NotFound, PermissionDenied
from headway.protobuf import decode
from headway.reconcile import STRONG_READ
from headway.resource import Registry, ResourceId, TypeName, did_you_mean, event_id, quoted, type_name
from headway.service import AccessChecks, Decision, Permissions, admit_id, ask, check_text
from headway.why._attending import Busy, Sort
from headway.why._host import ObserveHost
from headway.why._leases import lease_name
from headway.why._rights import AttendingRights
from headway.why.answers import id_of, sentences

OBSERVE_SERVICE = "headway.observe.v1.ObserveService"
ATTEND = f"/{OBSERVE_SERVICE}/Attend"
MOST_CONTROLLERS = 1000
"""The number of controllers of one process."""


class ObservePermissions(Permissions, Protocol):
    """The permissions of the caller of the current request."""

    @property
    def caller(self) -> str:
        """The name of the caller. Processes of different callers may have the same name."""
        ...

    def may_observe(self, id: ResourceId) -> bool:
        """Return True if the caller may ask why this resource is not done."""
        ...

    def may_observe_all(self, type: TypeName) -> bool:
        """Return True if the caller may ask this about every resource of the type."""
        ...

    def may_read_lease(self, name: str) -> bool:
        """Return True if an answer may show who holds the lease, and until when."""
        ...


class ObserveService(ObserveApi):
    """Answers to "why is this not done?".

    Args:
        permissions: what the caller may observe; without them, everything.
        ask: returns why a resource is not done, for a caller who may observe everything; by default `ObserveHost.why`.
        between: True if all callers are the other processes of this server.
    """

    def __init__(
        self,
        host: ObserveHost,
        registry: Registry,
        permissions: ObservePermissions | None = None,
        ask: Callable[[ResourceId], Awaitable[observe_pb.Why]] | None = None,
        *,
        between: bool = False,
    ) -> None:
        self._host = host
        self._between = between
        self._ask = ask or host.why
        self._permissions = permissions
        self._access = AccessChecks(permissions, registry)

    @override
    async def why(self, call: Call, request: observe_pb.WhyRequest) -> observe_pb.WhyResponse:
        """Answer why a resource is, or is not, done."""
        type, key = admit_id(self._access, request.id, "id")
        id = ResourceId(type.name, key[2], key[0], key[1], "" if request.id is None else request.id.uid)
        if not self._may(id):
            raise PermissionDenied(f"permission denied: you may not observe {id}")
        # An answer takes a millisecond, and a caller may send a thousand questions at once. The callers take turns.
        await give_way()
        why = await self._ask(id)
        await give_way()
        if self._permissions is not None:
            why = redacted(why, self._permissions, self._everywhere(self._permissions))
        return observe_pb.WhyResponse(why=why, sentences=sentences(why))

    @override
    async def stuck(self, call: Call, request: observe_pb.StuckRequest) -> observe_pb.StuckResponse:
        """Answer which resources have long had pending work, of the types that the caller may observe everywhere."""
        if not (math.isfinite(request.longer_than) and request.longer_than >= 0):
            raise InvalidArgument(f"longer_than {request.longer_than} must be a number of seconds >= 0, such as 60")
        permissions, allowed = self._permissions, set[str]()
        if permissions is not None:
            allowed = self._everywhere(permissions)
            if not allowed:
                raise PermissionDenied("permission denied: you may not observe all resources of any type")
        # The list is cut after it is reduced to what the caller may observe.
        types = None if permissions is None else allowed
        stuck = await self._host.stuck(request.longer_than, types)
        if permissions is not None:
            standbys = [
                each if ask(permissions.may_read_lease, each.controller) else replace(each, lease=None)
                for each in stuck.standbys
            ]
            stuck = replace(stuck, standbys=standbys)
        # A thousand items take tens of milliseconds. The callers take turns.
        await give_way()
        said = sentences(stuck)
        await give_way()
        names = self._host.names(types)
        return observe_pb.StuckResponse(stuck=stuck, sentences=said, controllers=names)

    @override
    async def retry(self, call: Call, request: observe_pb.RetryRequest) -> observe_pb.RetryResponse:
        """Let a controller reconcile a resource now, whatever delay it has."""
        type, key = admit_id(self._access, request.id, "id")
        id = ResourceId(type.name, key[2], key[0], key[1])
        self._access.check_write(id.message(), None)
        check_text("controller", request.controller)
        known = self._host.names({str(type.name)})
        controller = request.controller or known[0] if known else ""
        if controller not in known:
            named = f"named {request.controller!r} " if request.controller else ""
            hint = did_you_mean(request.controller, known)
            raise InvalidArgument(
                f"no controller {named}manages {type.name} in a process connected to this server{hint}"
            )
        if not request.controller and len(known) > 1:
            raise InvalidArgument(
                f"controller is required, because several manage {type.name}: give one of {', '.join(known)}"
            )
        observes = self._may(id)
        if observes and await self._host.read(id) is None:
            # The reconcile of a deletion may have failed.
            parts = (await self._host.why(id)).controllers
            if not any(each.name == controller and each.attempt for each in parts):
                raise NotFound(f"{id} not found, and {controller} has no work pending for it")
        done, silent = await self._host.retry(controller, id)
        if not done:
            ended = f"; {', '.join(silent)} did not answer" if observes and silent else ""
            raise FailedPrecondition(
                f"{controller} does not reconcile {id} in any process connected to this server: it is starting, ended, "
                f"or another process holds its lease{ended}"
            )
        names = list(done) if observes else []
        return observe_pb.RetryResponse(controller=controller, processes=names, running=any(done.values()))

    @override
    @stream
    async def attend(self, call: Call, request: observe_pb.AttendRequest) -> AsyncGenerator[observe_pb.Question, None]:
        """Send questions to a process until its stream ends."""
        check_text("process", request.process)
        if not request.process:
            raise InvalidArgument("process is required: the name of the process that attends, such as 'web-1'")
        if not 1 <= len(request.controllers) <= MOST_CONTROLLERS:
            raise InvalidArgument(
                f"controllers must have 1 to {MOST_CONTROLLERS} entries, not {len(request.controllers)}"
            )
        controllers, scoped = {}, {each.name for each in request.controllers if each.scoped}
        for each in request.controllers:
            check_text("controllers.name", each.name)
            if self._permissions is not None and not ask(self._permissions.may_take_lease, each.name):
                raise PermissionDenied(f"permission denied: you may not acquire lease {each.name}")
            manages = type_name(each.manages)
            self._access.check_known(manages)
            controllers[each.name] = manages.unversioned
        try:
            caller, sort, rights = "", Sort.WORKER, None
            if self._permissions is not None:
                caller = self._permissions.caller
                rights = AttendingRights(self._permissions, self._access.registry, self._host.read)
            if self._between:
                caller, sort = request.caller or "", Sort.SIBLING if request.caller is None else Sort.RELAYED
            about = (controllers, caller, sort, rights, scoped)
            async with self._host.attended(request.process, *about) as attending:
                yield observe_pb.Question()
                async for question in attending.questions:
                    yield question
        except Busy:
            raise Exhausted("too many processes attend; try again later") from None

    @override
    async def answer(self, call: Call, request: observe_pb.AnswerRequest) -> observe_pb.AnswerResponse:
        """Accept the answer to a question. Only the process that was asked knows the number of the question."""
        pass_on = None if self._between else self._host.pass_on
        if not self._host.answered(request) and (pass_on is None or not await pass_on(request)):
            raise NotFound(f"number {quoted(request.number)}: no question waits for this answer")
        return observe_pb.AnswerResponse()

    def _everywhere(self, permissions: ObservePermissions) -> set[str]:
        """Return the types that the caller may observe everywhere."""
        return {str(type.name) for type in self._access.registry if ask(permissions.may_observe_all, type.name)}

    def _may(self, id: ResourceId) -> bool:
        return self._permissions is None or ask(self._permissions.may_observe, id)


class QuestionDecoder:
    """A decoder of one stream's questions."""

    def __call__(self, bodies: list[bytes]) -> list[observe_pb.Question]:
        """Return the questions that arrived together."""
        return [decode(observe_pb.Question, body) for body in bodies]


_UNKNOWN = "(you may not observe that resource)"


def redacted(why: observe_pb.Why, permissions: ObservePermissions, everywhere: Collection[str]) -> observe_pb.Why:
    """Return an answer without the names of other resources that the caller may not observe. Their types remain.

    The revision and the writer of a change belong to the resource: they would tell when it is written, and by whom.

    A controller on standby remains as well, without the state of a lease that the caller may not read. The events are
    left out for a caller who may not read them as resources.

    Args:
        everywhere: the types that the caller may observe everywhere.
    """

    def ref(it: observe_pb.Ref | None) -> observe_pb.Ref | None:
        if it is None or it == why.resource or not it.name or ask(permissions.may_observe, id_of(it)):
            return it
        return observe_pb.Ref(it.type)

    def causes(them: list[observe_pb.Cause]) -> list[observe_pb.Cause]:
        known = [(each, ref(each.resource)) for each in them]
        return [
            each if it == each.resource else replace(each, resource=it, revision=0, writer="") for each, it in known
        ]

    def touch(it: observe_pb.Touched) -> observe_pb.Touched:
        known = ref(it.resource)
        if known != it.resource:
            return observe_pb.Touched(it.how, known)
        if known is None or not it.how.startswith(f"{STRONG_READ} of ") or known.type in everywhere:
            return it
        # The text names a resource, but not its partition and namespace, so its own right cannot be checked.
        return observe_pb.Touched(STRONG_READ, known)

    def touched(them: list[observe_pb.Touched]) -> list[observe_pb.Touched]:
        return list(map(touch, them))

    def reconcile(it: observe_pb.PastReconcile) -> observe_pb.PastReconcile:
        return replace(it, causes=causes(it.causes), reads=touched(it.reads), writes=touched(it.writes))

    def part(it: observe_pb.ControllerWhy) -> observe_pb.ControllerWhy:
        shown = ask(permissions.may_read_lease, lease_name(it.name, it.shard))
        return replace(
            it,
            lease=it.lease if shown else None,
            holder=it.holder if shown else "",
            causes=causes(it.causes),
            held_write=ref(it.held_write),
            held_by=ref(it.held_by),
            busy=ref(it.busy),
            left_out=[
                each
                if (known := ref(each.resource)) == each.resource
                else replace(each, resource=known, error=_UNKNOWN, traceback="")
                for each in it.left_out
            ],
            # The error of a mapper is about the change that it got.
            unmapped=[
                each
                if (known := ref(each.resource)) == each.resource
                else replace(each, resource=known, revision=0, error=_UNKNOWN, traceback="")
                for each in it.unmapped
            ],
            turned_away=[
                each if (known := ref(each.resource)) == each.resource else replace(each, resource=known, revision=0)
                for each in it.turned_away
            ],
            reconciles=list(map(reconcile, it.reconciles)),
        )

    stored, events = why.stored, why.events
    if stored is not None:
        stored = replace(stored, owner=ref(stored.owner))
    # The name of an event contains the resource's uid, which is not in the answer. No rule needs to be that exact.
    of = why.resource
    if events and (of is None or ask(permissions.may_read, event_id(id_of(of)), None) is not Decision.ALLOWED):
        events = []
    return replace(why, stored=stored, events=events, controllers=list(map(part, why.controllers)))
