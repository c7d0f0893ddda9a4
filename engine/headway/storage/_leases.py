"""Leases, and the relation between the name of a lease and the fence that it governs. Pure."""

from __future__ import annotations

from typing import NamedTuple

from headway.errors import LeaseLost
from headway.resource import Position
from headway.storage._operations import Fence, FenceLowered, StorageError, UnknownTerm


class Lease(NamedTuple):
    """A term of a lease.

    Attributes:
        ttl: the seconds until the lease expires, counted from the beginning of the term and from each renewal.
        attempt: the attempt of the request that began the term. Once the term is in use, another request with this
            attempt is late.
        acquired_at: the time when the term began, in seconds since the epoch by the wall clock. It is only displayed.
    """

    name: str
    holder: str
    term: int
    ttl: float
    attempt: str
    acquired_at: float


class CurrentLease(NamedTuple):
    """A lease that is held, and the seconds until it expires unless it is renewed."""

    lease: Lease
    remaining: float


class Acquired(NamedTuple):
    """The result of a request to acquire a lease, and the current holder."""

    acquired: bool
    held: CurrentLease
    position: Position


class TermEnded(StorageError, LeaseLost):
    """The term of a lease has ended: it was released, has expired, or the lease has a new term."""


def not_held(name: str, holder: str, term: int, by: str, in_term: int) -> TermEnded:
    """Return the error for a term that has ended because ``by`` holds the lease in another term."""
    why = f"{holder} no longer holds {name} in term {term}: {by} holds it in term {in_term}"
    if by == holder:
        # A late request of the same holder may begin a term, but only once. A second process does so repeatedly.
        why += f"; if this happens again, another process is also named {holder!r}: give each process its own name"
    return TermEnded(why)


def is_late(held: Lease, holder: str, attempt: str, *, in_use: bool) -> bool:
    """Return True if the request is late: its attempt has begun the current term, and the term is in use.

    The sender no longer waits for such a request. While the term is not in use, a late request looks like one that was
    repeated because its answer was lost. It then begins a new term.
    """
    return in_use and attempt != "" and (held.holder, held.attempt) == (holder, attempt)


def scope_of(lease: str) -> tuple[str, str]:
    """Return the (controller, member) whose fence a lease governs: "a#b" is for member "b" of controller "a"."""
    controller, _, member = lease.partition("#")
    return controller, member


def lease_of(controller: str, member: str) -> str:
    """Return the name of the lease that governs a fence."""
    return f"{controller}#{member}" if member else controller


def check_borne(fence: Fence, stored: tuple[int, int]) -> None:
    """Compare the fence that a write carries with the stored pair (term, number).

    Raises:
        FenceLowered: the fence of the write is below the stored one.
        UnknownTerm: the term of the write is above the stored one. Every term that was granted is stored.
    """
    borne = (fence.term, fence.number)
    if borne < stored:
        lease = lease_of(fence.controller, fence.member)
        raise FenceLowered(f"the fence of {lease} is at {stored}, but this write carries the lower {borne}")
    if fence.term > stored[0]:
        raise UnknownTerm(
            f"term {fence.term} of {lease_of(fence.controller, fence.member)} was never granted; "
            f"the highest granted term is {stored[0]}"
        )
