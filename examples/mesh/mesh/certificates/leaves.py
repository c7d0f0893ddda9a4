"""The leaves of one process: made on demand, renewed in time, and kept in memory only."""

from __future__ import annotations

import datetime
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from headway.errors import FailedPrecondition
from mesh.certificates.names import IdentityKey, check_trust_domain, spiffe_id
from mesh.certificates.signing import Leaf, Signer
from mesh.proxies.names import MESH, Mesh

EARLIEST, LATEST = 0.6, 0.9
"""The share of a leaf's lifetime after which it is renewed: a random one between these."""
SPREAD: Final = datetime.timedelta(seconds=30)
"""The time over which the renewals are spread when another root signs; at most a tenth of a leaf's lifetime."""
_LOOK: Final = 60.0
"""The seconds after which the wall clock is looked at again: it may have jumped."""


def utc_now() -> datetime.datetime:
    """Return the time."""
    return datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True, kw_only=True)
class LeafLimits:
    """What one process spends on leaves.

    Attributes:
        rate: the leaves that it signs in a second. Further ones wait.
        leaves: the identities for which it keeps a leaf. Further ones are refused.
    """

    rate: float = 500
    leaves: int = 20_000

    def __post_init__(self) -> None:
        for name, value in (("rate", self.rate), ("leaves", self.leaves)):
            if not value > 0:
                raise ValueError(f"{name} is {value!r}: it must be > 0, such as 100")


@dataclass(eq=False)
class _Held:
    """The leaf of an identity, and what is known of it. Only who has the lock replaces the leaf."""

    lock: trio.Lock = field(default_factory=trio.Lock)
    leaf: Leaf | None = None
    root: str = ""
    # The number of its entry in the queue of renewals. Entries with another number are void.
    turn: int = 0


class Leaves:
    """The certificates of the proxies of one process: it implements `Certificates`.

    Args:
        mesh: the mesh.
        limits: what it may cost.
        now: returns the time.
        chance: returns a random number from 0 to 1.
    """

    def __init__(
        self,
        mesh: Mesh = MESH,
        limits: LeafLimits | None = None,
        *,
        now: Callable[[], datetime.datetime] = utc_now,
        chance: Callable[[], float] = random.random,
    ) -> None:
        check_trust_domain(mesh)
        self._mesh, self._limits, self._now, self._chance = mesh, limits or LeafLimits(), now, chance
        self._roots: tuple[str, ...] = ()
        self._signer: Signer | None = None
        self._lifetime = datetime.timedelta()
        self._known = trio.Event()
        self._changed: list[Callable[[IdentityKey | None], None]] = []
        self._held: dict[IdentityKey, _Held] = {}
        self._renewals: list[tuple[datetime.datetime, int, IdentityKey, _Held]] = []
        self._turns = 0
        self._earlier = trio.Event()
        # The queue of those that wait to sign. The lock is fair.
        self._queue = trio.Lock()
        self._next_turn = 0.0

    def __len__(self) -> int:
        return len(self._held)

    def roots(self) -> tuple[str, ...]:
        """Return all roots that proxies must trust now, in PEM and in a fixed order; none while they are not known."""
        return self._roots

    async def leaf(self, identity: IdentityKey) -> Leaf:
        """Return a certificate that is valid now. It waits until the roots are known, and then its turn.

        Raises:
            FailedPrecondition: this process keeps as many leaves as it may, or cannot use the key of the root.
            InvalidArgument: a part of the key is not a valid name.
        """
        name = spiffe_id(self._mesh, identity)
        held = self._held.get(identity)
        if held is None:
            if len(self._held) >= self._limits.leaves:
                raise FailedPrecondition(
                    f"no certificate of {identity.name}: this process keeps {self._limits.leaves} leaves, and may not "
                    "keep more: connect proxies to another one, or raise `leaves` of its limits"
                )
            held = self._held[identity] = _Held()
        async with held.lock:
            if held.leaf is None or held.leaf.expires <= self._now():
                return await self._sign(identity, name, held)
            return held.leaf

    def release(self, identity: IdentityKey) -> None:
        """Forget the certificate of an identity: no proxy here needs it any more."""
        held = self._held.pop(identity, None)
        if held is not None:
            held.leaf = None  # the queue of renewals may have it for days

    def subscribe(self, changed: Callable[[IdentityKey | None], None]) -> None:
        """Call ``changed`` with an identity that has a new certificate, or with None when the roots are others."""
        self._changed.append(changed)

    def trust(self, roots: tuple[str, ...], signer: Signer | None, lifetime: datetime.timedelta) -> None:
        """Have proxies trust these roots, and sign leaves of this lifetime with one of them.

        Leaves of another root are renewed soon. Each other leaf keeps its lifetime.

        Args:
            roots: the roots, in PEM.
            signer: the root that signs. None if its key cannot be used: then the former one signs while it is trusted.
            lifetime: the lifetime of new leaves.
        """
        before, self._roots = self._roots, roots
        if signer is None and self._signer is not None and self._signer.certificate in roots:
            signer = self._signer
        self._signer, self._lifetime = signer, lifetime
        self._known.set()
        for identity, held in self._held.items():
            if signer is not None and held.leaf is not None and held.root != signer.fingerprint:
                held.root = signer.fingerprint  # of the leaf that is on the way, so that this is done once
                self._plan(identity, held, self._now() + min(SPREAD, lifetime / 10) * self._chance())
        if before != roots:
            self._tell(None)

    async def renew(self) -> None:
        """Renew leaves when it is time, without end."""
        while True:
            wait = _LOOK
            if self._renewals:
                at, turn, identity, held = self._renewals[0]
                if self._held.get(identity) is not held or held.turn != turn:
                    heapq.heappop(self._renewals)
                    continue
                wait = min(wait, (at - self._now()).total_seconds())
                if wait <= 0:
                    heapq.heappop(self._renewals)
                    await self._renew_one(identity, held)
                    continue
            self._earlier = trio.Event()
            with trio.move_on_after(wait):
                await self._earlier.wait()

    async def _renew_one(self, identity: IdentityKey, held: _Held) -> None:
        try:
            async with held.lock:
                await self._sign(identity, spiffe_id(self._mesh, identity), held)
        except FailedPrecondition:
            self._plan(identity, held, self._now() + SPREAD)
            return
        if self._held.get(identity) is held:
            self._tell(identity)

    async def _sign(self, identity: IdentityKey, name: str, held: _Held) -> Leaf:
        await self._known.wait()
        async with self._queue:
            await trio.sleep_until(self._next_turn)
            self._next_turn = trio.current_time() + 1 / self._limits.rate
        if self._signer is None:
            raise FailedPrecondition(
                f"no certificate of {identity.name}: this process cannot use the key of the root that signs; the "
                "errors of its controller `certificates` say why"
            )
        now = self._now()
        made = self._signer.leaf(name, now=now, lifetime=self._lifetime)
        if self._held.get(identity) is held:
            held.leaf, held.root = made, self._signer.fingerprint
            self._plan(identity, held, renewal(now, made.expires, self._chance()))
        return made

    def _plan(self, identity: IdentityKey, held: _Held, at: datetime.datetime) -> None:
        self._turns += 1
        held.turn = self._turns
        heapq.heappush(self._renewals, (at, held.turn, identity, held))
        # Entries of released identities are dropped before they are most of the queue.
        if len(self._renewals) > 2 * len(self._held) + 64:
            self._renewals = [each for each in self._renewals if self._is_planned(each)]
            heapq.heapify(self._renewals)
        self._earlier.set()

    def _is_planned(self, entry: tuple[datetime.datetime, int, IdentityKey, _Held]) -> bool:
        _, turn, identity, held = entry
        return self._held.get(identity) is held and held.turn == turn

    def _tell(self, identity: IdentityKey | None) -> None:
        for changed in self._changed:
            changed(identity)


def renewal(made: datetime.datetime, expires: datetime.datetime, chance: float) -> datetime.datetime:
    """Return the time to renew a leaf, for a random number from 0 to 1."""
    return made + (expires - made) * (EARLIEST + (LATEST - EARLIEST) * chance)


def in_memory(
    mesh: Mesh = MESH,
    limits: LeafLimits | None = None,
    *,
    lifetime: datetime.timedelta = datetime.timedelta(hours=72),
    now: Callable[[], datetime.datetime] = utc_now,
) -> Leaves:
    """Return certificates with a root of their own, for tests. Only if `Leaves.renew` runs, leaves are renewed."""
    made = Leaves(mesh, limits, now=now)
    signer = Signer.new(mesh.trust_domain, now=now(), lifetime=20 * lifetime)
    made.trust((signer.certificate,), signer, lifetime)
    return made
