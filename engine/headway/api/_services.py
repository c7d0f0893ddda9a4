"""The typed protocols of the services that every engine has, except for those that observe it."""

from __future__ import annotations

from typing import Any, Protocol

from headway._gen.headway.lease import v1 as lease_pb
from headway._gen.headway.store import v1 as store_pb
from headway._gen.headway.types import v1 as types_pb
from headway.api._call import Call
from headway.api._methods import Api, Cardinality, Stream, method
from headway.resource import ScopeConfirmed, StreamItem, pb


class ResourceApi(Api, Protocol, service="headway.resource.v1.ResourceService"):
    """The eight verbs of resources."""

    @method("Read", pb.ReadRequest, pb.ReadResponse)
    async def read(self, call: Call, request: pb.ReadRequest, /) -> pb.ReadResponse:
        """Return one resource by its id."""
        ...

    @method("Write", pb.WriteRequest, pb.WriteResponse, effect=True)
    async def write(self, call: Call, request: pb.WriteRequest, /) -> pb.WriteResponse:
        """Store a resource, and return it as stored."""
        ...

    @method("WriteStatus", pb.WriteStatusRequest, pb.WriteStatusResponse, effect=True)
    async def write_status(self, call: Call, request: pb.WriteStatusRequest, /) -> pb.WriteStatusResponse:
        """Store one status of a resource, and return the resource as stored."""
        ...

    @method("Delete", pb.DeleteRequest, pb.DeleteResponse, effect=True)
    async def delete(self, call: Call, request: pb.DeleteRequest, /) -> pb.DeleteResponse:
        """Delete a resource, or mark it for deletion."""
        ...

    @method("MutateAndValidate", pb.MutateAndValidateRequest, pb.MutateAndValidateResponse)
    async def mutate_and_validate(
        self, call: Call, request: pb.MutateAndValidateRequest, /
    ) -> pb.MutateAndValidateResponse:
        """Return what a write would store, without storing it."""
        ...

    # The reply to a call that `encodes` is `Encoded`, in pieces.
    @method("List", pb.ListRequest, pb.ListResponse)
    async def list(self, call: Call, request: pb.ListRequest, /) -> Any:
        """Return the resources of a type within a tenancy, or one page of them."""
        ...

    @method("ListByOwner", pb.ListByOwnerRequest, pb.ListByOwnerResponse)
    async def list_by_owner(self, call: Call, request: pb.ListByOwnerRequest, /) -> Any:
        """Return all resources of every type that an incarnation of an owner owns."""
        ...

    @method("WatchList", pb.WatchListRequest, pb.WatchEvent, Cardinality.UNARY_STREAM)
    def watch_list(self, call: Call, request: pb.WatchListRequest, /) -> Stream[StreamItem | ScopeConfirmed]:
        """Send a snapshot of a type, its end, and then every change."""
        ...


class LeaseApi(Api, Protocol, service="headway.lease.v1.LeaseService"):
    """The leases of controllers, and their fences and checkpoints."""

    @method("Acquire", lease_pb.AcquireRequest, lease_pb.AcquireResponse, effect=True)
    async def acquire(self, call: Call, request: lease_pb.AcquireRequest, /) -> lease_pb.AcquireResponse:
        """Acquire a lease, or wait for it, or tell who holds it."""
        ...

    @method("KeepAlive", lease_pb.KeepAliveRequest, lease_pb.KeepAliveResponse, effect=True)
    async def keep_alive(self, call: Call, request: lease_pb.KeepAliveRequest, /) -> lease_pb.KeepAliveResponse:
        """Renew a lease for a whole ttl from now."""
        ...

    @method("Release", lease_pb.ReleaseRequest, lease_pb.ReleaseResponse, effect=True)
    async def release(self, call: Call, request: lease_pb.ReleaseRequest, /) -> lease_pb.ReleaseResponse:
        """End a term early."""
        ...

    @method("List", lease_pb.ListRequest, lease_pb.ListResponse)
    async def list(self, call: Call, request: lease_pb.ListRequest, /) -> lease_pb.ListResponse:
        """Return the leases that are held."""
        ...

    @method("Raise", lease_pb.RaiseRequest, lease_pb.RaiseResponse, effect=True)
    async def raise_fence(self, call: Call, request: lease_pb.RaiseRequest, /) -> lease_pb.RaiseResponse:
        """Commit a raised fence."""
        ...

    @method("RecordSettled", lease_pb.RecordSettledRequest, lease_pb.RecordSettledResponse, effect=True)
    async def record_checkpoint(
        self, call: Call, request: lease_pb.RecordSettledRequest, /
    ) -> lease_pb.RecordSettledResponse:
        """Record the revision up to which the fence's controller has no work left."""
        ...


class StoreApi(Api, Protocol, service="headway.store.v1.StoreService"):
    """The store itself."""

    @method("Position", store_pb.PositionRequest, store_pb.PositionResponse)
    async def position(self, call: Call, request: store_pb.PositionRequest, /) -> store_pb.PositionResponse:
        """Return the position of the store."""
        ...


class TypesApi(Api, Protocol, service="headway.types.v1.TypesService"):
    """The types and topics of a server."""

    # The reply to a call that `encodes` is `Encoded`.
    @method("List", types_pb.ListRequest, types_pb.ListResponse)
    async def list(self, call: Call, request: types_pb.ListRequest, /) -> Any:
        """Return the types and topics, and the messages that they contain."""
        ...
