"""The storage conformance suite: every promise of `headway.storage.Backend`, run against a store."""

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
"""A claim about an empty store: its name says it, its docstring says it whole.

Most are given the store, open; those of `_conformance_restarts` open it themselves, several times.
"""

SHORT_HISTORY = _conformance_history.SHORT_HISTORY
"""How many changes the store keeps that the checks of bounded history are run on."""


class Capability(enum.Enum):
    """What a store may lack. It says so (`StoreUnderTest.lacks`); nobody guesses it."""

    DURABILITY = "durability"
    """Opened again at the same place, it holds what it held."""

    KEPT_HISTORY = "a history that is kept"
    """Opened again at the same place, it has the history that it had."""

    HISTORY_BOUND = "a bound of history"
    """It can be told how many changes to keep."""

    FENCE_LIST = "a list of fences"
    """It has `headway.storage.ListsFences`, so that it can be copied."""


class OpenStore(Protocol):
    """Opens the store at a place, making an empty one where there is none.

    ``place`` is a path under which nobody else puts anything; a store that isn't in files takes it for a name.
    ``max_changes``, where it is given, is how many changes of history are to be kept.
    """

    def __call__(self, place: Path, /, *, max_changes: int = ...) -> AbstractAsyncContextManager[Backend]: ...


@dataclass(frozen=True, slots=True)
class StoreUnderTest:
    """What the suite has to know of a store.

    Attributes:
        open: opens it.
        lacks: what it doesn't claim; the checks of that are left out.
        restore: restores the closed store at a place from a copy of itself; None: there is no such thing.
    """

    open: OpenStore
    lacks: frozenset[Capability] = frozenset()
    restore: Callable[[Path], Awaitable[None]] | None = None

    def claims(self, check: BackendCheck) -> bool:
        """Whether a check is about something that this store claims."""
        if check in _conformance_restarts.ON_RESTORED:
            return self.restore is not None
        needed = _NEEDED.get(check)
        return needed is None or needed not in self.lacks

    def left_out(self, check: BackendCheck) -> str:
        """Why a check isn't run, in a word."""
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
"""Every check, in an order in which the first one that fails says most."""

_NEEDED: dict[BackendCheck, Capability] = {
    **dict.fromkeys(_conformance_history.ON_SHORT_HISTORY, Capability.HISTORY_BOUND),
    **dict.fromkeys(_conformance_restarts.ON_REOPENED, Capability.DURABILITY),
    _conformance_restarts.positions_of_before_can_be_resumed_from: Capability.KEPT_HISTORY,
    _conformance_fences.fences_are_listed_as_they_stand: Capability.FENCE_LIST,
}


class Verdict(NamedTuple):
    """How one check has ended.

    Attributes:
        claim: the check's name.
        sentence: what it claims, whole.
        seconds: that it took.
        failure: why the claim doesn't hold; empty: it does.
        lacks: what the store says it lacks; then the check was not run.
    """

    claim: str
    sentence: str
    seconds: float
    failure: str = ""
    lacks: str = ""


async def run_backend_check(check: BackendCheck, store: StoreUnderTest, place: Path, *, seconds: float = 30.0) -> None:
    """Run one check on the store at a place where there is none yet.

    Raises AssertionError with a sentence where the claim doesn't hold, also when it took longer than ``seconds``.
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
        raise AssertionError(f"the check was not done after {seconds:g} s: the store has left somebody waiting")


async def verdicts(
    store: StoreUnderTest,
    checks: Sequence[BackendCheck] = (),
    *,
    seconds: float = 30.0,
    report: Callable[[Verdict], object] | None = None,
) -> list[Verdict]:
    """Run all checks (or some), each on a fresh store under a temporary directory, and say how each has ended.

    Whatever a store raises that it shouldn't is a failure of the check, and the next one goes on.

    Args:
        store: what is held to its promises.
        checks: which; unless given, all.
        seconds: that each may take.
        report: is called with every verdict as soon as there is one.
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
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # whatever it is, it is the store's
        failure = _failure(error)
    return Verdict(name, sentence, trio.current_time() - begun, failure)


def claim_of(check: BackendCheck) -> tuple[str, str]:
    """A check's name, and the sentence that it holds the store to."""
    return getattr(check, "__name__", repr(check)), " ".join((check.__doc__ or "").split())


def _failure(error: BaseException) -> str:
    causes = list(leaves(error))
    if not all(isinstance(each, Exception) for each in causes):
        # A cancellation or an interruption is nobody's verdict.
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
    """Run every check that the store claims, each for at most ``seconds``, and return how many were run.

    Raises AssertionError that names the first claim that doesn't hold.
    """

    def stop_at_a_failure(verdict: Verdict) -> None:
        if verdict.failure:
            raise AssertionError(f"{verdict.claim}: {verdict.failure}")

    said = await verdicts(store, seconds=seconds, report=stop_at_a_failure)
    return sum(not verdict.lacks for verdict in said)
