"""Every store passes the conformance suite, and each check of the suite fails on at least one broken store."""

import random
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from headway.storage import (
    Backend,
    EtcdBackend,
    MemoryBackend,
    PostgresBackend,
    SqliteBackend,
    backup_store,
    restore_store,
)
from headway.testing import (
    BACKEND_CHECKS,
    SHORT_HISTORY,
    BackendCheck,
    Capability,
    StoreUnderTest,
    Verdict,
    check_backend,
    claim_of,
    run_backend_check,
    verdicts,
)
from headway.testing.conformance import concurrency, grammar, leases, quotas, scopes, watches
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.postgres_server import PostgresServer
from tests.storage import (
    broken_commits,
    broken_fences,
    broken_quotas,
    broken_reads,
    broken_restarts,
    broken_scopes,
    broken_watches,
)
from tests.storage.kept_memory import Broken, KeptMemories, KeptMemory
from tests.storage.sqlite_kit import set_limit


def open_memory(_: Path, *, max_changes: int = 100_000) -> AbstractAsyncContextManager[Backend]:
    return MemoryBackend(max_changes=max_changes)


async def restore_sqlite(place: Path) -> None:
    copy = place.with_name("copy")
    await backup_store(f"sqlite:{place}", copy)
    await restore_store(copy, f"sqlite:{place}", replace=True)


MEMORY = StoreUnderTest(open_memory, lacks=frozenset({Capability.DURABILITY, Capability.KEPT_HISTORY}))
LITTLE = "sqlite with little memory"
STORES = {
    "memory": MEMORY,
    "sqlite": StoreUnderTest(SqliteBackend, restore=restore_sqlite),
    # Its watches read from the file what memory no longer has. The test sets the limits.
    LITTLE: StoreUnderTest(SqliteBackend, restore=restore_sqlite),
    # Placeholders: the test replaces their `open` by one for the servers of the tests.
    "etcd": StoreUnderTest(open_memory),
    "postgres": StoreUnderTest(open_memory),
}

OF_WATCHES = tuple(module.__name__ for module in (concurrency, grammar, scopes, watches))


def on(server: EtcdServer) -> StoreUnderTest:
    """Return a new store on the etcd of the tests."""
    url = f"etcd://{server.endpoint}{server.new_prefix()}"

    def open_etcd(_: Path, *, max_changes: int = 100_000) -> EtcdBackend:
        return EtcdBackend(url, max_changes=max_changes)

    return replace(STORES["etcd"], open=open_etcd)


def on_postgres(server: PostgresServer) -> StoreUnderTest:
    """Return a new store on the PostgreSQL of the tests."""
    url = server.new_url()

    def open_postgres(_: Path, *, max_changes: int = 100_000) -> PostgresBackend:
        return PostgresBackend(url, max_changes=max_changes)

    return replace(STORES["postgres"], open=open_postgres)


LARGE = (
    "a_large_snapshot_is_of_one_revision",
    "a_list_continues_after_a_key_and_ends_at_its_limit",
    "a_snapshot_of_any_size_has_an_end",
)
"""The checks that fill a store with thousands of resources, which takes seconds on a disk."""

TOGETHER = (quotas.writers_never_exceed_a_quota_together, quotas.a_quota_can_be_declared_under_writers)
"""The checks of quotas that depend most on the store. The memory store runs all of them."""


def is_slow(check: BackendCheck) -> bool:
    """Return True if a check runs only with `wide` on a disk or a network."""
    return claim_of(check)[0] in LARGE or (check.__module__ == quotas.__name__ and check not in TOGETHER)


UNTIL_EXPIRED = (
    leases.an_ended_lease_cannot_be_renewed,
    leases.no_write_of_a_term_is_stored_after_another_holder_acquires,
    leases.no_write_of_a_term_is_stored_after_it_expired,
    leases.terms_only_grow,
    leases.the_end_of_a_lease_wakes_waiting_tasks,
)
"""The checks that wait until a lease has expired. No lease of an etcd is shorter than a second."""


@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(
            name,
            check,
            id=f"{name}-{claim_of(check)[0]}",
            marks=[pytest.mark.wide] * (name != "memory" and is_slow(check)),
        )
        for name, store in STORES.items()
        for check in BACKEND_CHECKS
        if store.claims(check)
        and not (name == "etcd" and check in UNTIL_EXPIRED)
        and (name != LITTLE or check.__module__ in OF_WATCHES)
    ],
)
async def test_store_passes_conformance_check(
    name: str, check: BackendCheck, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = STORES[name]
    if name == LITTLE:
        set_limit(monkeypatch, "IN_MEMORY", 1)
        set_limit(monkeypatch, "PAGE_CHANGES", 3)
    if name == "etcd":
        store = on(request.getfixturevalue("etcd"))
    if name == "postgres":
        store = on_postgres(request.getfixturevalue("postgres"))
    await run_backend_check(check, store, tmp_path / "store")


async def test_etcd_passes_the_checks_that_wait_until_a_lease_has_expired(etcd: EtcdServer, tmp_path: Path) -> None:
    """Each has a store of its own on the same server, so that they wait together."""

    async def passes(check: BackendCheck) -> None:
        try:
            await run_backend_check(check, on(etcd), tmp_path)
        except BaseException as error:
            error.add_note(f"the check was: {claim_of(check)[0]}")
            raise

    assert set(UNTIL_EXPIRED) <= set(BACKEND_CHECKS)
    async with trio.open_nursery() as nursery:
        for check in UNTIL_EXPIRED:
            nursery.start_soon(passes, check)


@pytest.mark.wide
async def test_suite_runs_every_check_and_counts_them(autojump_clock: MockClock) -> None:
    """`check_backend` runs each check on a store of its own; a store with every capability gets every check."""
    memories = KeptMemories()
    store = StoreUnderTest(memories.open, restore=memories.restore)

    assert await check_backend(store) == len(BACKEND_CHECKS) == len(memories.opened)
    assert set(memories.opened.values()) == {100_000, SHORT_HISTORY}
    assert autojump_clock.current_time() < 30, "a check has waited until its timeout"
    assert len({claim_of(check) for check in BACKEND_CHECKS}) == len(BACKEND_CHECKS)
    assert all(sentence.endswith(".") for _, sentence in map(claim_of, BACKEND_CHECKS))


@pytest.mark.wide
async def test_missing_capability_skips_its_checks_with_a_reason(autojump_clock: MockClock) -> None:
    """A check of a capability that the store does not claim is skipped, and its verdict names the capability."""
    lacks = {each.claim: each.lacks for each in await verdicts(MEMORY) if each.lacks}

    assert lacks.pop("a_restored_store_is_another") == "restoring"
    assert autojump_clock.current_time() < 30
    assert lacks.pop("earlier_positions_can_be_resumed_from") == "a history that is kept"
    assert set(lacks.values()) == {"durability"}


async def test_failed_check_gives_a_verdict_and_does_not_stop_the_suite(autojump_clock: MockClock) -> None:
    """A false claim, a crash in the store and a timeout each give their reason."""

    async def holds(_: Backend) -> None:
        """The claim is true."""

    async def fails(_: Backend) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crashes, _)
            raise AssertionError("it does not hold")

    async def crashes(_: Backend) -> None:
        raise KeyError("missing")

    async def hangs(_: Backend) -> None:
        await trio.sleep_forever()

    said = await verdicts(MEMORY, [holds, fails, crashes, hangs], seconds=7)

    assert [(each.claim, each.failure) for each in said[:2]] == [("holds", ""), ("fails", "it does not hold")]
    assert said[2].failure.startswith("KeyError: 'missing' (in ")
    assert "test_conformance.py" in said[2].failure
    assert said[3].failure == "the check timed out after 7 s: the store has left a task waiting"
    assert said[3].seconds >= 7
    assert autojump_clock.current_time() < 8
    with pytest.raises(AssertionError, match="fails: it does not hold"):
        await check_backend_of([fails])


async def check_backend_of(checks: list[BackendCheck]) -> None:
    """Run `check_backend` with a suite of these checks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.testing.conformance._suite.BACKEND_CHECKS", checks)
        await check_backend(MEMORY)


async def test_canceled_suite_gives_no_verdict(autojump_clock: MockClock) -> None:
    """Canceling the suite does not count as a failure of the store."""

    async def hangs(_: Backend) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.sleep_forever()

    said: list[Verdict] = []
    with trio.move_on_after(1) as patience:
        await verdicts(MEMORY, [hangs], report=said.append)

    assert patience.cancelled_caught
    assert autojump_clock.current_time() < 2
    assert said == []


BROKEN: Broken = {}
for module in (
    broken_commits,
    broken_reads,
    broken_watches,
    broken_scopes,
    broken_fences,
    broken_quotas,
    broken_restarts,
):
    assert not BROKEN.keys() & module.BROKEN.keys()
    BROKEN.update(module.BROKEN)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        pytest.param(broken, check, id=f"{broken.__name__}-{claim_of(check)[0]}")
        for broken, checks in BROKEN.items()
        for check in checks
    ],
)
async def test_check_fails_on_broken_store(
    broken: type[KeptMemory], check: BackendCheck, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check for the broken promise fails with a sentence."""
    # Trio runs the tasks of a batch in random order. Here the order is the same each time.
    monkeypatch.setattr("trio._core._run._r", random.Random(1))
    memories = KeptMemories(broken)
    [said] = await verdicts(StoreUnderTest(memories.open, restore=memories.restore), [check])

    assert said.failure, f"{broken.__name__} passes the check: {said.claim}"
    assert " (in /" not in said.failure, f"the check crashed instead of failing: {said.failure}"
    assert autojump_clock.current_time() < 40


def test_every_check_fails_on_some_broken_store() -> None:
    """A check that fails on no store would verify nothing."""
    found = {check for checks in BROKEN.values() for check in checks}

    assert [claim_of(check)[0] for check in BACKEND_CHECKS if check not in found] == []
