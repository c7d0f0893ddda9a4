"""What a lease is, and what its name says of fences. Pure."""

from __future__ import annotations

from typing import NamedTuple

from headway.resource import Position
from headway.storage._errors import FenceLowered, UnknownTerm


class Lease(NamedTuple):
    """A term of a lease.

    Attributes:
        ttl: seconds for which it is held from its beginning, and from each renewal on.
        attempt: of the request that began the term. Once the term is in use, another request with this attempt is late.
        acquired_at: when the term began, in seconds since the epoch by the wall's clock: to look at.
    """

    name: str
    holder: str
    term: int
    ttl: float
    attempt: str
    acquired_at: float


class HeldLease(NamedTuple):
    """A lease that is held, and for how many seconds more unless it is kept alive."""

    lease: Lease
    remaining: float


class Acquired(NamedTuple):
    """How an attempt to take a lease has ended, and who holds it now."""

    acquired: bool
    held: HeldLease
    position: Position


def is_late(held: Lease, holder: str, attempt: str, *, in_use: bool) -> bool:
    """Return True for a request that its sender has stopped waiting for: the term of its attempt is in use.

    Before that nobody can tell it from the repetition of a request whose answer was lost, and it begins a new term.
    """
    return in_use and attempt != "" and (held.holder, held.attempt) == (holder, attempt)


def scope_of(lease: str) -> tuple[str, str]:
    """The (controller, member) whose fence a lease governs: "a" that of controller "a", "a#b" of its member "b"."""
    controller, _, member = lease.partition("#")
    return controller, member


def lease_of(controller: str, member: str) -> str:
    """The name of the lease that governs a fence."""
    return f"{controller}#{member}" if member else controller


def check_raise(controller: str, held: int | None, term: int) -> None:
    """Refuse to raise a fence in another term than the one in which its lease is held (None: nobody holds it)."""
    if held is not None and term != held:
        raise FenceLowered(f"the lease of {controller} is held in term {held}; a raise for term {term} is not its")


def check_borne(controller: str, member: str, stored: tuple[int, int], borne: tuple[int, int]) -> None:
    """Compare the fence that a write bears with the stored one: (term, number) of each.

    Raises FenceLowered if it is below, and UnknownTerm if its term is above: every term that is granted is stored.
    """
    if borne < stored:
        raise FenceLowered(f"the fence of {controller} is at {stored}, above {borne} of this write")
    if borne[0] > stored[0]:
        raise UnknownTerm(
            f"term {borne[0]} of {lease_of(controller, member)} was never granted; the highest that was is {stored[0]}"
        )
