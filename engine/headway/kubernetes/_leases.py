"""Leases, fences and checkpoints as Leases of coordination.k8s.io.

A Lease does not expire by itself: who wants it observes that it has not changed for as long as it lasts, by its own
clock. Each write of a Lease has the uid and the resourceVersion of the one that was read, so that of two only one
succeeds. The term of a holder is the resourceVersion of the write that took the Lease, which only grows, also if the
Lease is deleted and made again.

A fence is a Lease without a holder, in whose annotations stand the term, the number and the checkpoint of a controller.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from typing import Any, NamedTuple

import trio
from typing_extensions import override

from headway._gen.headway.lease import v1 as lease_pb
from headway.api import Call, LeaseApi
from headway.errors import AlreadyExists, Conflict, Fenced, LeaseLost, NotFound, StoreChanged, WrongUid
from headway.kubernetes._cluster import Cluster
from headway.kubernetes._unresolved import Unresolved
from headway.resource import pb, position
from headway.storage import first_checkpoint, next_term

NAME = "headway.dev/name"
_FENCE = "headway.dev/fence"
_CHECKPOINT = "headway.dev/checkpoint"
_TERM = "headway.dev/term"
_CLUSTER = "headway.dev/cluster"
MANAGED_BY = "app.kubernetes.io/managed-by"
_POLL = 1.0
_ATTEMPTS = 8


class _Observed(NamedTuple):
    """A state of a Lease, and since when it has been seen, on Trio's clock."""

    version: str
    since: float
    holder: str
    ttl: float


def object_name(kind: str, name: str) -> str:
    """Return the name of the Lease object of a lease or a fence. Different ones have different names."""
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower())[:180].strip("-")
    digest = hashlib.sha256(f"{kind}/{name}".encode()).hexdigest()[:8]
    return "-".join(filter(None, ("headway", kind, readable, digest)))


class Leases(LeaseApi):
    """The leases, in one namespace of a cluster."""

    def __init__(self, cluster: Cluster, unresolved: Unresolved) -> None:
        self._cluster = cluster
        self._unresolved = unresolved
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}/leases"
        self._observed: dict[str, _Observed] = {}
        # The terms that this process has been granted, by the name and the holder.
        self._terms: dict[tuple[str, str], int] = {}

    @override
    async def acquire(self, call: Call, request: lease_pb.AcquireRequest, /) -> lease_pb.AcquireResponse:
        """Acquire a lease, or wait for it, or tell who holds it."""
        until = trio.current_time() + request.wait_ms / 1000
        while True:
            reply = await self._acquire(request)
            left = until - trio.current_time()
            if reply.acquired or left <= 0:
                return reply
            await trio.sleep(min(_POLL, left, max(reply.retry_after_ms / 1000, 0.05)))

    async def _acquire(self, request: lease_pb.AcquireRequest) -> lease_pb.AcquireResponse:
        name, holder = request.name, request.holder
        now = _time()
        found = await self._read("lease", name)
        spec = {} if found is None else found.get("spec") or {}
        other = spec.get("holderIdentity") or ""
        ttl = spec.get("leaseDurationSeconds") or 0
        seen = self._observed.get(name)
        if found is None and seen is not None and seen.holder != holder:
            # Somebody has deleted it. Its holder learns of that with its next renewal.
            other, left = seen.holder, seen.since + seen.ttl - trio.current_time()
        else:
            left = self._expires_in(name, found, other, ttl) if other and other != holder else 0.0
        if left > 0:
            term = 0 if found is None else _term_of(found)
            return lease_pb.AcquireResponse(holder=other, term=term, retry_after_ms=int(left * 1000) + 1)
        seconds = max(1, -(-request.ttl_ms // 1000))
        taken = {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": spec.get("leaseTransitions", 0) + (1 if other and other != holder else 0),
        }
        made = await self._store("lease", name, found, taken, {_TERM: ""})
        if made is None:
            return lease_pb.AcquireResponse(holder=other, retry_after_ms=1)
        term = int(made["metadata"]["resourceVersion"])
        self._terms[name, holder] = term
        position = self._cluster.position(term).message()
        return lease_pb.AcquireResponse(acquired=True, holder=holder, term=term, position=position)

    def _expires_in(self, name: str, found: dict[str, Any] | None, holder: str, ttl: float) -> float:
        """Return the seconds until a lease that does not change has expired, by this process's clock."""
        version = "" if found is None else found["metadata"]["resourceVersion"]
        seen = self._observed.get(name)
        if seen is None or seen.version != version:
            seen = self._observed[name] = _Observed(version, trio.current_time(), holder, ttl)
        return seen.since + ttl - trio.current_time()

    @override
    async def keep_alive(self, call: Call, request: lease_pb.KeepAliveRequest, /) -> lease_pb.KeepAliveResponse:
        """Renew a lease for a whole ttl from now."""
        name, holder = request.name, request.holder
        for _ in range(_ATTEMPTS):
            found = await self._held(name, holder, request.term)
            spec = {**found["spec"], "renewTime": _time()}
            if await self._store("lease", name, found, spec, {_TERM: str(request.term)}) is not None:
                return lease_pb.KeepAliveResponse()
        raise Conflict(f"lease {name} kept being changed by others while it was renewed")

    async def _held(self, name: str, holder: str, term: int) -> dict[str, Any]:
        found = await self._read("lease", name)
        other = "" if found is None else (found.get("spec") or {}).get("holderIdentity") or ""
        mine = other == holder and self._terms.get((name, holder)) == term
        # Another process of this name may hold it.
        if found is None or not mine or _term_of(found) != term:
            raise LeaseLost(f"term {term} of lease {name} has ended: {f'{other} holds it' if other else 'it is free'}")
        return found

    @override
    async def release(self, call: Call, request: lease_pb.ReleaseRequest, /) -> lease_pb.ReleaseResponse:
        """End a term early."""
        for _ in range(_ATTEMPTS):
            try:
                found = await self._held(request.name, request.holder, request.term)
            except LeaseLost:
                break
            # An empty holder would be refused.
            spec = {key: value for key, value in found["spec"].items() if key != "holderIdentity"}
            if await self._store("lease", request.name, found, spec, {}) is not None:
                break
        self._terms.pop((request.name, request.holder), None)
        return lease_pb.ReleaseResponse()

    @override
    async def list(self, call: Call, request: lease_pb.ListRequest, /) -> lease_pb.ListResponse:
        """Return the leases that are held."""
        found = await self._cluster.server.call("GET", self._path, params={"labelSelector": f"{MANAGED_BY}=headway"})
        held: list[lease_pb.Lease] = []
        for each in found.get("items") or ():
            name = (each["metadata"].get("annotations") or {}).get(NAME, "")
            spec = each.get("spec") or {}
            ttl = spec.get("leaseDurationSeconds") or 0
            if spec.get("holderIdentity") and name.startswith(request.name_prefix):
                left = self._expires_in(name, each, spec["holderIdentity"], ttl)
                if left > 0:
                    held.append(
                        lease_pb.Lease(
                            name=name,
                            holder=spec["holderIdentity"],
                            term=_term_of(each),
                            ttl_ms=ttl * 1000,
                            expires_in_ms=int(left * 1000),
                            acquired_at=datetime.datetime.fromisoformat(spec["acquireTime"]),
                        )
                    )
        return lease_pb.ListResponse(leases=sorted(held, key=lambda lease: lease.name))

    # Fences.

    @override
    async def raise_fence(self, call: Call, request: lease_pb.RaiseRequest, /) -> lease_pb.RaiseResponse:
        """Find out the controller's unknown writes, and commit a raised fence."""
        controller, member = request.controller, request.member
        await self._unresolved.resolve(controller, member)
        name = _scope(controller, member)
        for _ in range(_ATTEMPTS):
            found = await self._read("fence", name)
            term, number, checkpoint = self._fence(found)
            following, from_now = term + 1, 0
            if not checkpoint:
                # Its first fence. The next run looks for what was deleted since, also if this one records nothing.
                others = await self._fences_of(controller)
                following = max(following, next_term((controller, member), others))
                recorded = {each: checkpoint for (_, each), (*_, checkpoint) in others.items() if checkpoint}
                checkpoint = first_checkpoint(member, recorded) or 0
                from_now = checkpoint or await self._cluster.now()
            wanted = (request.term or following, request.number)
            if found is not None and wanted <= (term, number):
                raise Fenced(f"the fence of {name} is at term {term}, number {number}: a later run has begun")
            text = {_FENCE: f"{wanted[0]}.{wanted[1]}", _CHECKPOINT: str(checkpoint or from_now)}
            made = await self._store("fence", name, found, {}, text)
            if made is not None:
                revision = int(made["metadata"]["resourceVersion"])
                return lease_pb.RaiseResponse(
                    fence=pb.Fence(controller=controller, member=member, term=wanted[0], number=wanted[1]),
                    position=self._cluster.position(revision).message(),
                    settled_revision=checkpoint or revision,
                )
        raise Conflict(f"the fence of {name} kept being changed by others while it was raised")

    @override
    async def record_checkpoint(
        self, call: Call, request: lease_pb.RecordSettledRequest, /
    ) -> lease_pb.RecordSettledResponse:
        """Record the revision up to which the fence's controller has no work left."""
        fence = request.fence or pb.Fence()
        known = position(request.known)
        if known is not None and known.store_id != self._cluster.store_id:
            raise StoreChanged(f"the cluster is now {self._cluster.store_id}, no longer {known.store_id}")
        name = _scope(fence.controller, fence.member)
        # A run that begins there would not look for what comes late.
        revision = await self._cluster.proven(request.revision)
        for _ in range(_ATTEMPTS):
            found = await self._read("fence", name)
            term, number, checkpoint = self._fence(found)
            if (fence.term, fence.number) < (term, number):
                raise Fenced(f"the fence of {name} is at term {term}, number {number}: a later run has begun")
            if checkpoint >= revision:
                break
            text = {_FENCE: f"{term}.{number}", _CHECKPOINT: str(revision)}
            if await self._store("fence", name, found, {}, text) is not None:
                break
        return lease_pb.RecordSettledResponse()

    async def _fences_of(self, controller: str) -> dict[tuple[str, str], tuple[int, int, int]]:
        """Return all fences of a controller, by the controller and the member."""
        found = await self._cluster.server.call("GET", self._path, params={"labelSelector": f"{MANAGED_BY}=headway"})
        fences: dict[tuple[str, str], tuple[int, int, int]] = {}
        for each in found.get("items") or ():
            of, _, member = (each["metadata"].get("annotations") or {}).get(NAME, "").partition("#")
            if of == controller and any(fence := self._fence(each)):
                fences[of, member] = fence
        return fences

    def _fence(self, found: dict[str, Any] | None) -> tuple[int, int, int]:
        """Return the term, the number and the checkpoint of a fence; zeros without one, or of another cluster."""
        annotations = {} if found is None else found["metadata"].get("annotations") or {}
        if annotations.get(_CLUSTER) != self._cluster.store_id:
            return 0, 0, 0
        term, _, number = annotations.get(_FENCE, "0.0").partition(".")
        return int(term), int(number), int(annotations.get(_CHECKPOINT, "0"))

    # Objects.

    async def _read(self, kind: str, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = await self._cluster.server.call("GET", f"{self._path}/{object_name(kind, name)}")
        except NotFound:
            return None
        return found

    async def _store(
        self, kind: str, name: str, found: dict[str, Any] | None, spec: dict[str, Any], annotations: dict[str, str]
    ) -> dict[str, Any] | None:
        """Store a Lease over the state that was read, and return it; None if another writer was first."""
        own = object_name(kind, name)
        meta: dict[str, Any] = {"name": own} if found is None else dict(found["metadata"])
        meta.pop("managedFields", None)
        meta["labels"] = {**(meta.get("labels") or {}), MANAGED_BY: "headway"}
        own_notes = {NAME: name, _CLUSTER: self._cluster.store_id}
        meta["annotations"] = {**(meta.get("annotations") or {}), **own_notes, **annotations}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
        call = self._cluster.server.call
        try:
            made: dict[str, Any] = (
                await call("POST", self._path, body=body)
                if found is None
                else await call("PUT", f"{self._path}/{own}", body=body)
            )
        except (AlreadyExists, Conflict, WrongUid):
            return None
        except NotFound:
            if found is None:
                # Its namespace does not exist.
                raise
            return None
        return made


def _scope(controller: str, member: str) -> str:
    return f"{controller}#{member}" if member else controller


def _term_of(found: dict[str, Any]) -> int:
    """Return the term of a Lease. Its holder writes it down with the first renewal."""
    known = (found["metadata"].get("annotations") or {}).get(_TERM)
    return int(known or found["metadata"]["resourceVersion"])


def _time() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
