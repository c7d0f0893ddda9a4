"""The storage conformance suite: checks of every promise of `headway.storage.Backend`."""

from __future__ import annotations

import enum
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import trio

from headway._groups import leaves
from headway.errors import HeadwayError
from headway.storage import Backend
from headway.testing import (
    _conformance_commits,
    _conformance_concurrency,
    _conformance_fences,
    _conformance_grammar,
    _conformance_history,
    _conformance_leases,
    _conformance_reads,
    _conformance_restarts,
    _conformance_watches,
)

BackendCheck = Callable[[Any], Awaitable[None]]
"""A check of a claim about an empty store. Its name is the claim in short; its docstring is the claim in full.

Most checks get the open store. Those of `_conformance_restarts` open it themselves, several times.
"""

SHORT_HISTORY = _conformance_history.SHORT_HISTORY
"""The number of changes that a store keeps in the checks of bounded history."""


class Capability(enum.Enum):
    """A capability that a store may lack. The store declares it in `StoreUnderTest.lacks`; the suite does not guess."""

    DURABILITY = "durability"
    """The store keeps its contents when it is closed and opened again at the same place."""

    KEPT_HISTORY = "a history that is kept"
    """The store keeps its history when it is closed and opened again at the same place."""

    HISTORY_BOUND = "a bound of history"
    """The number of changes to keep can be set."""

    FENCE_LIST = "a list of fences"
    """The store implements `headway.storage.ListsFences`, so that it can be copied."""


class OpenStore(Protocol):
    """A function that opens the store at a place, and creates an empty one if there is none.

    Args:
        place: a path that nothing else uses. A store that is not in files uses it as a name.
        max_changes: if given, the number of changes of history to keep.
    """

    def __call__(self, place: Path, /, *, max_changes: int = ...) -> AbstractAsyncContextManager[Backend]: ...


@dataclass(frozen=True, slots=True)
class StoreUnderTest:
    """A description of the store under test.

    Attributes:
        open: opens the store.
        lacks: the capabilities that the store does not have. Their checks are left out.
        restore: restores the closed store at a place from a copy of itself; None if the store cannot be restored.
    """

    open: OpenStore
    lacks: frozenset[Capability] = frozenset()
    restore: Callable[[Path], Awaitable[None]] | None = None

    def claims(self, check: BackendCheck) -> bool:
        """Return True if a check is about something that this store claims."""
        if check in _conformance_restarts.ON_RESTORED:
            return self.restore is not None
        needed = _NEEDED.get(check)
        return needed is None or needed not in self.lacks

    def left_out(self, check: BackendCheck) -> str:
        """Return the reason why a check is not run, in a word or two."""
        return _NEEDED[check].value if check in _NEEDED else "restoring"


BACKEND_CHECKS: list[BackendCheck] = [
    *_conformance_commits.CHECKS,
    *_conformance_reads.CHECKS,
    *_conformance_watches.CHECKS,
    *_conformance_grammar.CHECKS,
    *_conformance_history.CHECKS,
    *_conformance_concurrency.CHECKS,
    *_conformance_fences.CHECKS,
    *_conformance_leases.CHECKS,
    *_conformance_restarts.CHECKS,
]
"""Every check. The order is such that the first failure says most."""

_NEEDED: dict[BackendCheck, Capability] = {
    **dict.fromkeys(_conformance_history.ON_SHORT_HISTORY, Capability.HISTORY_BOUND),
    **dict.fromkeys(_conformance_restarts.ON_REOPENED, Capability.DURABILITY),
    _conformance_restarts.positions_of_before_can_be_resumed_from: Capability.KEPT_HISTORY,
    _conformance_fences.fences_are_listed_as_they_stand: Capability.FENCE_LIST,
}


class Verdict(NamedTuple):
    """The result of one check.

    Attributes:
        claim: the check's name.
        sentence: the claim in full.
        seconds: the time taken.
        failure: the reason why the claim does not hold; empty if it holds.
        lacks: the capability that the store lacks, if the check was not run because of it.
    """

    claim: str
    sentence: str
    seconds: float
    failure: str = ""
    lacks: str = ""


async def run_backend_check(check: BackendCheck, store: StoreUnderTest, place: Path, *, seconds: float = 30.0) -> None:
    """Run one check on a new store at a place.

    Raises:
        AssertionError: if the claim does not hold, or the check takes longer than ``seconds``.
    """
    bounded = _NEEDED.get(check) is Capability.HISTORY_BOUND

    def opening() -> AbstractAsyncContextManager[Backend]:
        return store.open(place, max_changes=SHORT_HISTORY) if bounded else store.open(place)

    with trio.move_on_after(seconds) as patience:
        if check in _conformance_restarts.CHECKS:
            restore = store.restore
            await check(_conformance_restarts.Reopened(opening, None if restore is None else lambda: restore(place)))
        else:
            async with opening() as backend:
                await check(backend)
    if patience.cancelled_caught:
        raise AssertionError(f"the check timed out after {seconds:g} s: the store has left a task waiting")


async def verdicts(
    store: StoreUnderTest,
    checks: Sequence[BackendCheck] = (),
    *,
    seconds: float = 30.0,
    report: Callable[[Verdict], object] | None = None,
) -> list[Verdict]:
    """Run checks, each on a new store under a temporary directory, and return their verdicts.

    An unexpected exception of the store is a failure of the check, and the next check runs.

    Args:
        store: the store under test.
        checks: the checks to run; all by default.
        seconds: the time limit for each check.
        report: called with every verdict as soon as it is known.
    """
    said: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="headway-conformance-") as directory:
        for number, check in enumerate(checks or BACKEND_CHECKS):
            said.append(await _verdict(check, store, Path(directory) / f"store-{number}", seconds))
            if report is not None:
                report(said[-1])
    return said


async def _verdict(check: BackendCheck, store: StoreUnderTest, place: Path, seconds: float) -> Verdict:
    name, sentence = claim_of(check)
    if not store.claims(check):
        return Verdict(name, sentence, 0.0, lacks=store.left_out(check))
    begun, failure = trio.current_time(), ""
    try:
        await run_backend_check(check, store, place, seconds=seconds)
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # any error is a failure of the store
        failure = _failure(error)
    return Verdict(name, sentence, trio.current_time() - begun, failure)


def claim_of(check: BackendCheck) -> tuple[str, str]:
    """Return a check's name and its claim in full."""
    return getattr(check, "__name__", repr(check)), " ".join((check.__doc__ or "").split())


def _failure(error: BaseException) -> str:
    causes = list(leaves(error))
    if not all(isinstance(each, Exception) for each in causes):
        # A cancellation or an interruption says nothing about the store.
        raise error
    for each in causes:
        if isinstance(each, AssertionError) and str(each):
            return str(each)
    only = causes[0]
    if isinstance(only, HeadwayError):
        return f"the store raised {type(only).__name__}: {only}"
    where = only.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = f" (in {where.tb_frame.f_code.co_filename}, line {where.tb_lineno})" if where is not None else ""
    return f"{type(only).__name__}: {only}{place}"


async def check_backend(store: StoreUnderTest, *, seconds: float = 30.0) -> int:
    """Run every check that the store claims, and return how many were run.

    Args:
        seconds: the time limit for each check.

    Raises:
        AssertionError: if a claim does not hold; names the first such claim.
    """

    def stop_at_a_failure(verdict: Verdict) -> None:
        if verdict.failure:
            raise AssertionError(f"{verdict.claim}: {verdict.failure}")

    said = await verdicts(store, seconds=seconds, report=stop_at_a_failure)
    return sum(not verdict.lacks for verdict in said)
