"""Writes with an unknown outcome: they are found out for each object, by a write that a late arrival cannot pass.

An API server may store a write seconds after its caller has given up. Each write of Headway has a precondition: the uid
and the resourceVersion, or that the name is free. A *fencing write* of the object makes the precondition false. What
the object is after it, it stays, whatever arrives later.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import trio

from headway.api import Code, Interrupted, NotBegun, call_of
from headway.errors import CallerError, Conflict, HeadwayError, NotFound, RateLimited
from headway.kubernetes._cluster import Cluster
from headway.kubernetes._errors import NotAdmitted
from headway.kubernetes._objects import id_path
from headway.kubernetes._types import KubernetesType
from headway.resource import pb, resource_id

SETTLED = "headway.dev/settled"
"""The label of a fencing write. An annotation would begin a new generation of a Deployment."""

_MERGE = "application/merge-patch+json"


class Sent(NamedTuple):
    """A write on its way.

    Attributes:
        version: the resourceVersion that it needs; empty for a creation.
        body: the object of a creation.
        manager: the manager of its fields.
    """

    type: KubernetesType[Any]
    id: pb.Id
    version: str = ""
    body: dict[str, Any] | None = None
    manager: str = ""


class _Task:
    """A task that finds out writes."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: HeadwayError | None = None


class Unresolved:
    """The writes of this process whose outcome is unknown, by the controllers and members that have made them.

    Args:
        nursery: where they are found out.
    """

    def __init__(self, cluster: Cluster, warn: Callable[[str], object], nursery: trio.Nursery) -> None:
        self._cluster = cluster
        self._warn = warn
        self._nursery = nursery
        self._writes: dict[tuple[str, str], list[Sent]] = {}
        self._tasks: dict[tuple[str, str], _Task] = {}

    @contextmanager
    def sending(self, fence: pb.Fence | None, sent: Sent) -> Iterator[None]:
        """Note the write if the block ends before its outcome is known. A caller without a fence gets the error."""
        try:
            yield
        except BaseException as error:
            if fence is not None and is_in_doubt(error):
                self._writes.setdefault((fence.controller, fence.member), []).append(sent)
            raise

    @contextmanager
    def following(self, fence: pb.Fence | None, sent: Sent) -> Iterator[None]:
        """Let a failure of what follows a stored write leave the outcome of the whole unknown."""
        try:
            yield
        except BaseException as error:
            if fence is not None:
                self._writes.setdefault((fence.controller, fence.member), []).append(sent)
            if isinstance(error, HeadwayError):
                raise Interrupted(
                    Code.UNAVAILABLE, f"the write was stored, but not all that follows: {error}"
                ) from error
            raise

    async def resolve(self, controller: str, member: str) -> None:
        """Find out every write of a controller. It goes on if the caller gives up, because a write may take longer.

        Raises Unavailable if that fails; the rest is found out by the next call.
        """
        of = controller, member
        task = self._tasks.get(of)
        if task is None:
            if not self._writes.get(of):
                return
            task = self._tasks[of] = _Task()
            self._nursery.start_soon(self._resolve_all, of, task, name=f"unknown writes of {controller}")
        await task.done.wait()
        if task.error is not None:
            raise task.error

    async def _resolve_all(self, of: tuple[str, str], task: _Task) -> None:
        waiting = self._writes[of]
        try:
            while waiting:
                await self._resolve(waiting[0])
                del waiting[0]
        except HeadwayError as error:
            task.error = error
        finally:
            del self._tasks[of]
            task.done.set()

    async def _resolve(self, sent: Sent) -> None:
        call, type = self._cluster.server.call, sent.type
        while True:
            if not sent.version:
                # The creation itself is repeated: a late arrival then finds the name taken.
                try:
                    params = {"fieldManager": sent.manager} if sent.manager else {}
                    path = id_path(type, collection_of(sent.id))
                    self._cluster.resource(type, await call("POST", path, params=params, body=sent.body))
                except (CallerError, NotAdmitted):
                    # The name is taken, or the late arrival will be refused likewise.
                    pass
                return
            try:
                known = await self._cluster.read(type, sent.id)
                if known is None or known.id is None or known.id.uid != sent.id.uid or known.version != sent.version:
                    return
                made = await call("PATCH", id_path(type, sent.id), body=_fencing(known), content_type=_MERGE)
                self._cluster.resource(type, made)
            except (Conflict, NotFound):
                # It has changed, perhaps by the lost write.
                continue
            except (CallerError, NotAdmitted) as error:
                # One object must not stop the controller.
                self._warn(
                    f"{resource_id(sent.id)}: a late write may still be stored, because its fencing is refused: {error}"
                )
            return


def collection_of(id: pb.Id) -> pb.Id:
    """Return the id of which `id_path` makes the path of a creation."""
    return pb.Id(tenancy=id.tenancy)


def _fencing(known: pb.Resource) -> dict[str, Any]:
    assert known.id is not None
    return {
        "metadata": {
            "uid": known.id.uid,
            "resourceVersion": known.version,
            "labels": {SETTLED: secrets.token_hex(8)},
        }
    }


def is_in_doubt(error: BaseException) -> bool:
    """Return True if a write that has ended so may have been stored, or may be stored later."""
    if not isinstance(error, HeadwayError):
        return True
    if isinstance(error, CallerError | RateLimited | NotBegun):
        return False
    call = call_of(error)
    return call is None or not call.not_begun
