"""Commits of resources and fences, and the recording of checkpoints.

A commit is based on the mirror's state. If etcd accepts it, that state was current (`layout/_transaction.py`). If etcd
or the mirror rejects it, it is tried again once the mirror has every commit made before. So a rejection that the caller
sees was also based on current state.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, TypeVar

import trio

from headway.errors import CommitRefused, InvalidArgument, Unavailable
from headway.resource import Position
from headway.storage._fences import first_checkpoint, raised_fence
from headway.storage._leases import lease_of
from headway.storage._operations import Fence, Operation, Raised, StorageError
from headway.storage._tables import Effect, decide
from headway.storage._traces import COMMITTING
from headway.storage.etcd._client import CALL_TIMEOUT
from headway.storage.etcd._session import Session
from headway.storage.etcd.layout import Draft, checkpoint_value, fence_value, putting

HIGHEST = 2**63 - 1
"""The highest revision, term or number that can be stored."""

_GIVING_UP = 3 * CALL_TIMEOUT

Result = TypeVar("Result")


class Outdated(Exception):
    """The mirror lacks commits of this process that add to the same limited numbers.

    The commit is proposed again after them.
    """


@contextmanager
def whole(session: Session) -> Iterator[None]:
    """Shield the block from cancellation. Each of its steps takes a bounded time."""
    session.begin()
    try:
        with trio.CancelScope(shield=True):
            yield
    finally:
        session.end()


async def decided(
    session: Session,
    propose: Callable[[], Draft | None],
    done: Callable[[int], Result],
    nothing: Callable[[], Result],
) -> Result:
    """Make a commit and return its result.

    Args:
        session: the session.
        propose: builds the commit from the mirror's state. It raises an error to reject the commit, or Outdated
            to be called again later, or returns None if there is nothing to commit. It may be called several times.
        done: makes the result from the revision of the commit.
        nothing: makes the result if there is nothing to commit.

    Raises:
        Unavailable: the commits of others kept changing the state. Nothing was written.
    """
    confirmed = False
    gives_up_at = math.inf
    while True:
        mirror = session.mirror
        version = mirror.version
        try:
            draft = propose()
        except (StorageError, CommitRefused):
            if confirmed:
                raise
            draft = None
        except Outdated:
            gives_up_at = min(gives_up_at, trio.current_time() + _GIVING_UP)
            _refuse_late(gives_up_at)
            await session.wait_changed()
            continue
        else:
            if draft is None and confirmed:
                return nothing()
        if draft is None:
            # Only this process has looked, so there need not be anything to wait for.
            await session.confirm()
        else:
            if (committed := await session.submit(draft)) is not None:
                return done(committed)
            gives_up_at = min(gives_up_at, trio.current_time() + _GIVING_UP)
            _refuse_late(gives_up_at)
            await session.wait_newer(mirror, version)
        confirmed = True


def _refuse_late(gives_up_at: float) -> None:
    if trio.current_time() > gives_up_at:
        raise Unavailable(f"commits of others kept conflicting with this one for {_GIVING_UP} s; nothing was written")


class _Commit:
    """A commit of operations, as `decided` makes it. An object, because each write would pay for three closures."""

    __slots__ = ("_fence", "_operations", "_proposed", "_session")

    def __init__(self, session: Session, operations: Sequence[Operation], fence: Fence | None) -> None:
        self._session = session
        self._operations = operations
        self._fence = fence
        self._proposed: list[Effect] = []

    def propose(self) -> Draft | None:
        fence, mirror = self._fence, self._session.mirror
        stored = mirror.check_fence(fence) if fence is not None else None
        applied: list[Effect] = []
        others: list[Operation] = []
        for operation in self._operations:
            effect = decide(mirror.tables, operation)
            if effect is None:
                others.append(operation)
            else:
                applied.append(effect)
        self._proposed = applied
        if not applied:
            return None
        draft = Draft(self._session.layout, mirror)
        self._ask_rules(draft, applied)
        if fence is not None and stored is not None:
            draft.compare_fence(fence.controller, fence.member, stored)
        if others:
            draft.compare(others)
        draft.apply(applied)
        committing = COMMITTING.get()
        if committing is not None:
            draft.trace = committing.trace
        return draft

    def _ask_rules(self, draft: Draft, applied: Sequence[Effect]) -> None:
        """Let the rules refuse the commit, and let the draft compare what they have based their answer on."""
        session, rules = self._session, self._session.rules
        claims = rules.claims(session.content.changes(applied)) if rules.concern(applied) else ()
        if any(effect[0] in rules.kinds for effect in applied):
            draft.change_rules()
        else:
            draft.compare_rules()
        if claims:
            for claim in claims:
                draft.claim(claim)
            if session.is_outdated(draft):
                raise Outdated

    def done(self, revision: int) -> Position:
        version = str(revision)
        for effect in self._proposed:
            if effect[3] is not None:
                effect[3].version = version
        return self._session.at(revision)

    def nothing(self) -> Position:
        return self._session.at(self._session.mirror.head.revision)


def commit(session: Session, operations: Sequence[Operation], fence: Fence | None) -> Awaitable[Position]:
    """Apply all operations in one commit and return its position. A cancellation is raised only if it is not stored."""
    it = _Commit(session, operations, fence)
    return decided(session, it.propose, it.done, it.nothing)


async def raise_fence(session: Session, controller: str, member: str, term: int, number: int) -> Raised:
    """Raise a fence by a commit."""
    fence = requested = Fence(controller, member, term, number)
    if not term:
        await session.confirm()  # other engines may have raised other members
    # If another engine records a higher checkpoint meanwhile, the run does more than necessary, but nothing is lost.
    recorded = await session.read_checkpoints(controller)
    checkpoint = recorded.get(member) or first_checkpoint(member, recorded)

    def propose() -> Draft:
        nonlocal fence
        mirror = session.mirror
        stored = mirror.fence(controller, member)
        held = mirror.leases.get(lease_of(controller, member))
        following = mirror.next_term(controller, member)
        fence = raised_fence(requested, (stored.term, stored.number), held and held.lease.term, following)
        if max(fence[2:]) > HIGHEST:
            raise InvalidArgument(f"the fence {fence[2:]} of {controller} is above {HIGHEST}, the maximum")
        draft = session.draft()
        draft.compare_fence(controller, member, stored)
        key = session.layout.fence(controller, member)
        draft.write(putting(key, fence_value(*fence[2:], leased=stored.leased and fence.term == stored.term)))
        if member not in recorded:
            draft.begin_checkpoint(controller, member, checkpoint)
        return draft

    def done(revision: int) -> Raised:
        return Raised(fence, session.at(revision), checkpoint or revision)

    return await decided(session, propose, done, _never)


async def record_checkpoint(session: Session, fence: Fence, revision: int) -> None:
    """Record that the fence's controller has no pending work up to a revision."""
    if not 0 <= revision <= HIGHEST:
        raise InvalidArgument(f"the revision must be between 0 and {HIGHEST}, got {revision}")

    def propose() -> Draft:
        stored = session.mirror.check_fence(fence)
        draft = session.draft()
        draft.compare_fence(fence.controller, fence.member, stored)
        draft.note(session.layout.checkpoint(fence.controller, fence.member), checkpoint_value(revision))
        return draft

    await decided(session, propose, lambda _: None, _never)


def _never() -> NoReturn:
    raise AssertionError("propose() never returns None here")
