"""The storage conformance suite: checks of every promise of `headway.storage.Backend`."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Protocol

import trio

from headway.base import Endless, checked, leaves
from headway.errors import HeadwayError
from headway.storage import Backend
from headway.testing.conformance import (
    commits,
    concurrency,
    fences,
    grammar,
    history,
    leases,
    quotas,
    reads,
    restarts,
    scopes,
    watches,
)
from headway.testing.conformance._tools import NEEDED, SHORT_HISTORY, BackendCheck, Capability


class OpenStore(Protocol):
    """A function that opens the store at a place, and creates an empty one where nothing is.

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
        return not self.lacked_by(check)

    def lacked_by(self, check: BackendCheck) -> str:
        """Return what a check needs and this store lacks, in a word or two, or an empty string."""
        if check is restarts.a_restored_store_is_another:
            return "" if self.restore is not None else "restoring"
        return NEEDED[check].value if NEEDED.get(check) in self.lacks else ""


def checks_of(module: ModuleType) -> list[BackendCheck]:
    """Return the checks of a module in their order: its public coroutine functions."""
    return [
        each
        for name, each in vars(module).items()
        if not name.startswith("_") and inspect.iscoroutinefunction(each) and each.__module__ == module.__name__
    ]


BACKEND_CHECKS: list[BackendCheck] = [
    check
    for module in (commits, reads, watches, scopes, grammar, history, concurrency, fences, leases, quotas, restarts)
    for check in checks_of(module)
]
"""Every check. The order is such that the first failure says most."""


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


@checked()
async def run_backend_check(
    check: BackendCheck, store: StoreUnderTest, place: Path, *, seconds: Endless = 30.0
) -> None:
    """Run one check on a new store at a place.

    Raises:
        AssertionError: if the claim does not hold, or the check takes longer than ``seconds``.
    """
    bounded = NEEDED.get(check) is Capability.HISTORY_BOUND

    def opening() -> AbstractAsyncContextManager[Backend]:
        return store.open(place, max_changes=SHORT_HISTORY) if bounded else store.open(place)

    with trio.move_on_after(seconds) as patience:
        if check.__module__ == restarts.__name__:
            restore = store.restore
            await check(restarts.Reopened(opening, None if restore is None else lambda: restore(place)))
        else:
            async with opening() as backend:
                await check(backend)
    if patience.cancelled_caught:
        raise AssertionError(f"the check timed out after {seconds:g} s: the store has left a task waiting")


@checked()
async def verdicts(
    store: StoreUnderTest,
    checks: Sequence[BackendCheck] = (),
    *,
    seconds: Endless = 30.0,
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
    if lacked := store.lacked_by(check):
        return Verdict(name, sentence, 0.0, lacks=lacked)
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
