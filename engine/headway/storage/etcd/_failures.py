"""The meaning of failed calls to etcd, as Headway's errors. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from grpclib import GRPCError
from grpclib.const import Status

from headway.errors import HeadwayError, HistoryCompacted, InvalidArgument, OutcomeUnknown, StoreUnusable, Unavailable
from headway.rpc import NotBegun

# With these statuses a write was certainly not applied. etcd returns them before it begins, or when it has decided
# against the write. Any other error may hide that the write was applied. A member that has applied a write can even
# answer with "database space exceeded".
_REFUSED = frozenset(
    (
        Status.INVALID_ARGUMENT,
        Status.NOT_FOUND,
        Status.PERMISSION_DENIED,
        Status.UNAUTHENTICATED,
        Status.FAILED_PRECONDITION,
        Status.OUT_OF_RANGE,
        Status.UNIMPLEMENTED,
    )
)
_COMPACTED = "has been compacted"
_NO_LEADER = "etcdserver: no leader"
_TOO_MANY_REQUESTS = "etcdserver: too many requests"
_TOO_LARGE = "etcdserver: request is too large"
_TOO_MANY_OPERATIONS = "etcdserver: too many operations in txn request"
_STALE_TOKENS = ("etcdserver: invalid auth token", "etcdserver: revision of auth store is old")


def said(error: GRPCError) -> str:
    """Return the message of the error, or the name of its status."""
    return error.message or error.status.name


def wants_new_token(error: GRPCError) -> bool:
    """Return True if the call failed only because of its token."""
    return any(text in said(error) for text in _STALE_TOKENS)


def is_behind(error: GRPCError) -> bool:
    """Return True if another member may succeed."""
    return error.status is Status.UNAVAILABLE and not isinstance(error, NotBegun)


def may_be_asked_again(error: GRPCError) -> bool:
    """Return True if a read that failed with this error may succeed now."""
    return error.status in (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED) or _TOO_MANY_REQUESTS in said(error)


def nothing_was_done(error: GRPCError) -> bool:
    """Return True if a write that failed with this error has certainly not happened and will not."""
    return (
        isinstance(error, NotBegun)
        or error.status in _REFUSED
        or said(error).startswith((_NO_LEADER, _TOO_MANY_REQUESTS))
    )


def failure(error: GRPCError, where: str, *, writes: bool) -> HeadwayError:
    """Return the error of Headway for a failed call."""
    text = said(error)
    if _TOO_LARGE in text:
        return InvalidArgument(
            f"the commit is larger than etcd at {where} accepts in one request (its --max-request-bytes, 1.5 MiB by "
            "default). Nothing was written"
        )
    if _TOO_MANY_OPERATIONS in text:
        return InvalidArgument(
            f"the commit has more operations than etcd at {where} accepts in one transaction. Nothing was written. The "
            "store's url must have a max_txn_ops of at most etcd's --max-txn-ops, which is 128 by default"
        )
    if error.status is Status.OUT_OF_RANGE and _COMPACTED in text:
        return HistoryCompacted(f"etcd at {where} has compacted the revision: {text}")
    if writes and not nothing_was_done(error):
        return OutcomeUnknown(f"etcd at {where} failed during a commit, which may have happened: {text}")
    if error.status in (Status.PERMISSION_DENIED, Status.UNAUTHENTICATED):
        return StoreUnusable(f"etcd at {where} refuses this user: {text}")
    if error.status is Status.UNIMPLEMENTED:
        return StoreUnusable(f"the server at {where} is not an etcd with the v3 API: {text}")
    return Unavailable(f"etcd at {where} is unavailable: {text}")


def too_many_operations(needed: int, most: int, where: str) -> InvalidArgument:
    """Return the error for a commit that was not sent because it has too many operations."""
    return InvalidArgument(
        f"the commit needs {needed} operations, but etcd at {where} accepts {most} in one transaction. Nothing was "
        f"sent. Split it into several commits, or start etcd with --max-txn-ops={needed} or more and set "
        f"max_txn_ops={needed} in the store's url. A resource needs one operation, with an owner two"
    )


class Unreadable(StoreUnusable):
    """Another program has written under the prefix."""


@contextmanager
def understood(where: str) -> Iterator[None]:
    """Raise Unreadable if the block cannot decode values under the prefix: another program has written them."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise Unreadable(f"the prefix of {where} has a value that Headway has not written: {error}") from error
