"""In a store in an SQLite file, reads of single resources share transactions."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from headway.base import CALLER
from headway.errors import StoreUnusable
from headway.resource import Key
from headway.storage import Within, open_sqlite
from headway.testing.conformance import KIND, put, thing
from tests.storage.sqlite_kit import READERS, Gate, around_reads, hold_lists, set_limit


def _key(name: str) -> Key:
    return ("default", "default", name)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of reads in each transaction."""
    seen: list[int] = []
    lock = threading.Lock()

    def counted(size: int, read: Callable[[], None]) -> None:
        assert lock.acquire(blocking=False), "two leaders read at once"
        seen.append(size)
        read()
        lock.release()

    around_reads(monkeypatch, counted)
    # The machine may be busy.
    set_limit(monkeypatch, "MOST_SECONDS", 3600)
    # All reads are of the file.
    set_limit(monkeypatch, "MOST_RECENT", 0)
    return seen


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, sizes: list[int]) -> Gate:  # noqa: ARG001  # it counts inside the gate
    """Hold every read transaction before its first read."""
    gate = Gate()

    def slow(_: int, read: Callable[[], None]) -> None:
        gate.pass_through()
        read()

    around_reads(monkeypatch, slow)
    return gate


async def test_concurrent_reads_share_a_transaction(tmp_path: Path, gate: Gate, sizes: list[int]) -> None:
    """Reads that begin during a transaction share the next one, and each gets its own answer."""
    found: dict[str, tuple[str, int]] = {}

    async def read(name: str) -> None:
        resource, at = await backend.read(KIND, _key(name))
        found[name] = ("" if resource is None else resource.version, at.revision)

    async with open_sqlite(tmp_path / "a.db") as backend:
        for index in range(9):
            await put(backend, thing(f"n{index}"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, "n0")
            await gate.reached()
            for index in range(1, 10):
                nursery.start_soon(read, f"n{index}")
            await trio.testing.wait_all_tasks_blocked()
            gate.open()
    assert sizes == [1, 9]
    assert found == {f"n{index}": (str(index + 1), 9) for index in range(9)} | {"n9": ("", 9)}


async def test_reads_of_one_turn_share_the_first_transaction(tmp_path: Path, sizes: list[int]) -> None:
    """The leader first collects the reads that began in the same turn of the loop."""
    async with open_sqlite(tmp_path / "a.db") as backend, trio.open_nursery() as nursery:
        for index in range(9):
            nursery.start_soon(backend.read, KIND, _key(f"n{index}"))
    assert sizes == [9]


async def test_read_sees_every_write_acknowledged_before_it(tmp_path: Path, gate: Gate) -> None:
    """A read never joins a transaction that has begun, so it sees every write that was acknowledged before it."""
    found: list[str] = []

    async def read() -> None:
        resource, _ = await backend.read(KIND, _key("a"))
        found.append("nothing" if resource is None else resource.version)

    async with open_sqlite(tmp_path / "a.db") as backend, trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await gate.reached()
        await put(backend, thing("a"))
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        gate.open()
    assert found[1] == "1", "the second read misses a write that was acknowledged before it"


async def test_canceled_read_does_not_block_other_reads(tmp_path: Path, gate: Gate) -> None:
    """The canceled read may be the leader or one of the others."""
    answers: list[int] = []

    async def read() -> None:
        answers.append((await backend.read(KIND, _key("a")))[1].revision)

    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, thing("a"))
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as doomed:
                    doomed.start_soon(read)
                    await gate.reached()
                    doomed.start_soon(read)
                    await trio.testing.wait_all_tasks_blocked()
                    nursery.start_soon(read)
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
                    gate.open()
        assert len(answers) >= 1
        assert (await backend.read(KIND, _key("a")))[1].revision == 1


async def test_reads_per_transaction_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    """More reads share several transactions."""
    set_limit(monkeypatch, "MOST_AT_ONCE", 4)

    async def read() -> None:
        for _ in range(5):
            await backend.read(KIND, _key("a"))

    async with open_sqlite(tmp_path / "a.db") as backend, trio.open_nursery() as nursery:
        for _ in range(21):
            nursery.start_soon(read)
    assert (sum(sizes), max(sizes)) == (105, 4)


async def test_large_rows_do_not_share_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    """A transaction ends with the row that fills it, and the others wait, so few large rows are in memory at once."""
    set_limit(monkeypatch, "MOST_BYTES", 1)
    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, thing("a"))
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(backend.read, KIND, _key("a"))
    assert sizes == [4, 3, 2, 1]


async def test_transaction_ends_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    """It makes progress even if its first read takes longer."""
    set_limit(monkeypatch, "MOST_SECONDS", 0)
    async with open_sqlite(tmp_path / "a.db") as backend, trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(backend.read, KIND, _key("a"))
    assert sizes == [4, 3, 2, 1]


async def test_callers_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    """A caller with one read doesn't wait for all the reads of another, however small the transactions are."""
    set_limit(monkeypatch, "MOST_BYTES", 1)
    order: list[str] = []

    async def read(caller: str) -> None:
        CALLER.set(caller)
        await backend.read(KIND, _key("a"))
        order.append(caller)

    async with open_sqlite(tmp_path / "a.db") as backend:
        await put(backend, thing("a"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, "first")
            await gate.reached()
            for caller in ["many"] * 5 + ["few"] * 2:
                nursery.start_soon(read, caller)
                await trio.testing.wait_all_tasks_blocked()
            gate.open()
    assert order == ["first", "many", "few", "many", "few", "many", "many", "many"]


@pytest.mark.parametrize("verb", ["list", "list_by_owner"])
async def test_lists_leave_connections_for_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """However many lists wait for a slow disk, or take long because of large rows, single resources can be read."""
    gate = Gate()
    hold_lists(monkeypatch, gate)

    async def collect() -> None:
        await (backend.list(KIND, Within()) if verb == "list" else backend.list_by_owner("01"))

    async with open_sqlite(tmp_path / "a.db") as backend, trio.open_nursery() as nursery:
        for _ in range(2 * READERS):
            nursery.start_soon(collect)
        await gate.reached()
        with trio.fail_after(20):
            await backend.read(KIND, _key("a"))
        gate.open()
    assert gate.calls == 2 * READERS


async def test_waiting_read_is_canceled_at_once(tmp_path: Path, gate: Gate) -> None:
    """Its caller has given up, and the reads of others do not wait for it."""
    async with open_sqlite(tmp_path / "a.db") as backend, trio.open_nursery() as nursery:
        nursery.start_soon(backend.read, KIND, _key("a"))
        await gate.reached()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as doomed:
                doomed.start_soon(backend.read, KIND, _key("a"))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        gate.open()


async def test_closing_the_store_rejects_all_waiting_reads(tmp_path: Path, gate: Gate) -> None:
    """Reads that have not begun fail, and none of them is left waiting."""
    errors: list[str] = []

    async def read() -> None:
        try:
            await backend.read(KIND, _key("a"))
        except StoreUnusable as error:
            errors.append(str(error))

    async with trio.open_nursery() as nursery, open_sqlite(tmp_path / "a.db") as backend:
        nursery.start_soon(read)
        await gate.reached()
        for _ in range(3):
            nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(_open_when_blocked, gate)
    assert len(errors) == 3
    assert all("is closed" in each for each in errors)


async def _open_when_blocked(gate: Gate) -> None:
    await trio.testing.wait_all_tasks_blocked()
    gate.open()
