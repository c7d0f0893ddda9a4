"""What a failed call to etcd means for who made it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from grpclib import GRPCError
from grpclib.const import Status

from headway.errors import HeadwayError, HistoryCompacted, InvalidArgument, OutcomeUnknown, StoreUnusable, Unavailable
from headway.rpc import NotBegun

# etcd says these before it begins, or when it has seen that it won't do it. What else a write fails with may hide that
# it was done: "database space exceeded", for one, is said by who has applied it, too.
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
    """What the error says."""
    return error.message or error.status.name


def wants_new_token(error: GRPCError) -> bool:
    """Whether the call was refused because of its token alone."""
    return any(text in said(error) for text in _STALE_TOKENS)


def is_behind(error: GRPCError) -> bool:
    """Whether another member may do better."""
    return error.status is Status.UNAVAILABLE and not isinstance(error, NotBegun)


def may_be_asked_again(error: GRPCError) -> bool:
    """Whether a read that failed so may succeed now."""
    return error.status in (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED) or _TOO_MANY_REQUESTS in said(error)


def nothing_was_done(error: GRPCError) -> bool:
    """Whether a write that failed so has certainly not happened and won't."""
    return (
        isinstance(error, NotBegun)
        or error.status in _REFUSED
        or said(error).startswith((_NO_LEADER, _TOO_MANY_REQUESTS))
    )


def failure(error: GRPCError, where: str, *, writes: bool) -> HeadwayError:
    """As Headway's callers know it."""
    text = said(error)
    if _TOO_LARGE in text:
        return InvalidArgument(
            f"the commit is larger than etcd at {where} takes in one request (its --max-request-bytes, 1.5 MiB by "
            "default). Nothing was written"
        )
    if _TOO_MANY_OPERATIONS in text:
        return InvalidArgument(
            f"the commit has more operations than etcd at {where} takes in one transaction. Nothing was written. The "
            "store's url must have a max_txn_ops of at most etcd's --max-txn-ops, which is 128 by default"
        )
    if error.status is Status.OUT_OF_RANGE and _COMPACTED in text:
        return HistoryCompacted(f"etcd at {where} doesn't have that any more: {text}")
    if writes and not nothing_was_done(error):
        return OutcomeUnknown(f"etcd at {where} failed while a commit was made, which may have happened: {text}")
    if error.status in (Status.PERMISSION_DENIED, Status.UNAUTHENTICATED):
        return StoreUnusable(f"etcd at {where} refuses this user: {text}")
    if error.status is Status.UNIMPLEMENTED:
        return StoreUnusable(f"what answers at {where} is no etcd that speaks its v3 API: {text}")
    return Unavailable(f"etcd at {where} could not be asked: {text}")


def too_many_operations(needed: int, most: int, where: str) -> InvalidArgument:
    """Return the refusal of a commit that was not sent."""
    return InvalidArgument(
        f"the commit needs {needed} operations, and etcd at {where} takes {most} in one transaction. Nothing was sent. "
        f"Make several commits of it, or start etcd with --max-txn-ops={needed} or more and say "
        f"max_txn_ops={needed} in the store's url. A resource needs one operation, with an owner two"
    )


class Unreadable(StoreUnusable):
    """Somebody else has written under the prefix."""


@contextmanager
def understood(where: str) -> Iterator[None]:
    """Bytes under the prefix that can't be read make the store unusable: somebody else has written them."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise Unreadable(f"under the prefix of {where} stands what Headway has not written: {error}") from error
