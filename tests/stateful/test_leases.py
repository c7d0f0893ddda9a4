"""A state machine for leases with wrong clocks, an unreliable network and restarts of the server, in virtual time."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headway.client import LeaseAnswer, LeaseClient, LeaseInfo, LeaseTerm
from headway.errors import Fenced, LeaseLost
from headway.rpc import InProcessChannel
from headway.service import LeaseService
from headway.storage import Backend, Fence, FenceLowered, MemoryBackend, SqliteBackend, scope_of
from headway.testing import LiveRun
from headway.testing.conformance import put, thing

NAME, TTL = "staff/accounts#3", 10.0
HOLDERS = ["ada", "grace", "mary"]
CLOCKS = {"ada": (0.0, 1.0), "grace": (5000.0, 0.85), "mary": (-300.0, 1.2)}
"""(offset, rate) of each holder's clock against the server's."""

holders = st.sampled_from(HOLDERS)
which = st.integers(0, 50)


class Sent(NamedTuple):
    """A request in flight, with its sender, the time by the sender's clock, and the sender's life and term."""

    kind: str
    holder: str
    sent_at: float
    life: int
    attempt: str = ""
    number: int = 0
    term: LeaseTerm | None = None


class LeaseMachine(LiveRun, RuleBasedStateMachine):
    """Holders send requests. The network delays, loses and reorders them, clocks differ, and the server may restart."""

    def make(self) -> Backend:
        return MemoryBackend()

    @initialize()
    def open(self) -> None:
        self.server = self.make()

        self.start()
        self.requests: list[Sent] = []
        self.replies: list[tuple[Sent, object]] = []
        self.terms: dict[str, LeaseTerm | None] = dict.fromkeys(HOLDERS)
        self.lives = dict.fromkeys(HOLDERS, 0)
        self.attempts = {holder: f"{holder} 0" for holder in HOLDERS}
        self.made = 0
        # Replies of the server: the (holder, attempt) of each granted term, and the terms reported as ended.
        self.granted: dict[int, tuple[str, str]] = {}
        self.ended: set[int] = set()
        # The terms that the server knows to be in use.
        self.used: set[int] = set()
        # By term: the number of its highest raised fence.
        self.raised: dict[int, int] = {}
        # The highest term that each holder has received.
        self.heard = dict.fromkeys(HOLDERS, 0)

    def start(self) -> None:
        self.call(self.server.__aenter__)
        self.client = LeaseClient(InProcessChannel(LeaseService(self.server)))

    def now(self, holder: str) -> float:
        offset, rate = CLOCKS[holder]
        return offset + rate * self.clock.current_time()

    def believes(self, holder: str) -> LeaseTerm | None:
        term = self.terms[holder]
        return term if term is not None and term.is_held(self.now(holder)) else None

    def listed(self) -> LeaseInfo | None:
        leases = self.call(self.client.list, NAME)
        return leases[0] if leases else None

    def send(self, kind: str, holder: str, **rest: Any) -> None:
        self.requests.append(Sent(kind, holder, self.now(holder), self.lives[holder], **rest))

    # --- what holders do ---

    @rule(holder=holders, again=st.booleans())
    def ask(self, holder: str, again: bool) -> None:
        """Request the lease for a holder without it, by a new attempt or by the one before.

        `hold_lease` begins with a new attempt, so it never repeats an attempt that it has released. Another client may
        do so while the release is in flight. The release must not end the term that this request is granted.
        """
        if self.believes(holder) is None:
            if not again:
                self.made += 1
                self.attempts[holder] = f"{holder} {self.made}"
            self.send("acquire", holder, attempt=self.attempts[holder])

    @rule(holder=holders, kind=st.sampled_from(["keep", "keep", "write", "raise", "release"]))
    def use(self, holder: str, kind: str) -> None:
        term = self.believes(holder)
        if term is not None:
            self.made += 1
            self.send(kind, holder, term=term, number=self.made)
            if kind == "release":
                term.lost = True

    @rule(holder=holders)
    def crash(self, holder: str) -> None:
        """Restart the holder without its state. Its requests are still in flight."""
        self.terms[holder] = None
        self.heard[holder] = 0
        self.lives[holder] += 1
        self.made += 1
        self.attempts[holder] = f"{holder} {self.made}"

    # --- what the network, time and the server do ---

    @precondition(lambda self: self.requests)
    @rule(index=which, lost=st.sampled_from([False, False, True]), soon=st.booleans())
    def deliver(self, index: int, lost: bool, soon: bool) -> None:
        request = self.requests.pop(index % len(self.requests))
        before = self.listed()
        reply = self.serve(request)
        self.judge(request, reply, before)
        if not lost:
            self.replies.append((request, reply))
            if soon:
                self.answer(len(self.replies) - 1)

    @precondition(lambda self: self.requests)
    @rule(index=which)
    def lose(self, index: int) -> None:
        self.requests.pop(index % len(self.requests))

    @precondition(lambda self: self.replies)
    @rule(index=which)
    def answer(self, index: int) -> None:
        """Deliver a reply to a request of the holder's present life."""
        request, reply = self.replies.pop(index % len(self.replies))
        now = self.now(request.holder)
        if request.life != self.lives[request.holder]:
            return
        if isinstance(reply, LeaseAnswer) and reply.acquired and self.believes(request.holder) is None:
            # A reply whose term is not above all earlier ones was overtaken, and its term has ended.
            if request.attempt == self.attempts[request.holder] and reply.term > self.heard[request.holder]:
                self.terms[request.holder] = LeaseTerm(reply.term, TTL, request.sent_at)
                self.heard[request.holder] = reply.term
        elif request.kind == "keep" and request.term is not None:
            if isinstance(reply, LeaseLost):
                request.term.lost = True
            else:
                request.term.renewed(request.sent_at, now)

    @rule(seconds=st.sampled_from([0.5, 2.0, 4.0, 7.0, 9.9, 10.0]))
    def pass_time(self, seconds: float) -> None:
        self.sleep(seconds)

    # --- what must hold ---

    def serve(self, request: Sent) -> object:
        term = request.term.number if request.term is not None else 0

        async def call() -> object:
            try:
                if request.kind == "acquire":
                    return await self.client.acquire(NAME, request.holder, TTL, attempt=request.attempt)
                if request.kind == "keep":
                    await self.client.keep_alive(NAME, request.holder, term)
                elif request.kind == "release":
                    await self.client.release(NAME, request.holder, term)
                elif request.kind == "raise":
                    await self.client.raise_fence(*scope_of(NAME), term=term, number=request.number)
                else:
                    fence = Fence("staff/accounts", "3", term, request.number)
                    await put(self.server, thing(f"by-{request.number}"), fence=fence)
            except (LeaseLost, Fenced, FenceLowered) as error:
                return error
            return None

        return self.call(call)

    def judge(self, request: Sent, reply: object, before: LeaseInfo | None) -> None:
        held = before.term if before is not None else None
        if isinstance(reply, LeaseAnswer):
            whose = (request.holder, request.attempt)
            late = before is not None and before.term in self.used and self.granted[before.term] == whose
            free = before is None or before.holder == request.holder
            assert reply.acquired == (free and not late)
            if reply.acquired:
                assert reply.term > max(self.granted, default=0), "a term was given out twice, or did not grow"
                self.ended.update(self.granted)
                self.granted[reply.term] = whose
        elif request.term is not None:
            number = request.term.number
            refused = isinstance(reply, LeaseLost | Fenced | FenceLowered)
            if request.kind == "release":
                self.ended.add(number)
                return
            # Requests overtake each other: a raise, or a write before it, may arrive after a higher raise.
            low = request.kind in ("write", "raise") and request.number < self.raised.get(number, 0)
            over = held != number
            assert refused == (over or low), f"{request.kind} in term {number} while {before} was held: {reply!r}"
            if over:
                self.ended.add(number)
            else:
                assert number not in self.ended, f"{request.kind} of term {number} after its end"
            if not refused and request.kind != "write":
                self.used.add(number)
            if not refused and request.kind == "raise":
                self.raised[number] = request.number

    @invariant()
    def who_believes_to_hold_it_holds_it(self) -> None:
        believers = [holder for holder in HOLDERS if self.believes(holder) is not None]
        assert len(believers) <= 1, f"{believers} believe to hold it"
        for holder in believers:
            listed = self.listed()
            assert listed is not None, f"{holder} believes to hold what nobody holds"
            assert listed.holder == holder

    def teardown(self) -> None:
        self.call(self.server.__aexit__, None, None, None)
        super().teardown()


class RestartedMachine(LeaseMachine):
    """The same machine on a SQLite file, with restarts of the server."""

    def make(self) -> Backend:
        self.folder = tempfile.TemporaryDirectory()
        return SqliteBackend(Path(self.folder.name) / "store.db")

    @rule()
    def restart(self) -> None:
        before = self.listed()
        self.call(self.server.__aexit__, None, None, None)
        self.start()
        # Raises are stored and renewals are not. After a restart, a late request costs the holder only its term.
        self.used.intersection_update(self.raised)
        after = self.listed()
        if before is not None:
            assert after is not None
            assert (after.holder, after.term, after.expires_in) == (before.holder, before.term, TTL)
        elif after is not None:
            assert after.term not in self.ended

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


TestLeasesInMemory = LeaseMachine.TestCase
TestLeasesInAFile = RestartedMachine.TestCase
# Each step waits for the disk.
TestLeasesInAFile.settings = settings(max_examples=settings().max_examples // 4)
