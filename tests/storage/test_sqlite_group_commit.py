"""In a store in an SQLite file, writers share a commit, and each gets its own outcome."""

import signal
from pathlib import Path

import pytest
import trio
import trio.testing

from headway.errors import PayloadError
from headway.resource import Position
from headway.storage import Backend, VersionConflict, open_sqlite
from headway.testing.conformance import names, put, thing
from tests.storage.sqlite_kit import Gate, count_batches, replace_gathering, set_limit


async def test_concurrent_writers_share_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 writers with ten writes each need little more than ten transactions, not 640."""
    transactions = count_batches(monkeypatch)

    async def write(backend: Backend, writer: int) -> None:
        for index in range(10):
            await put(backend, thing(f"n{writer}-{index}"))

    async with open_sqlite(tmp_path / "a.db") as backend:
        async with trio.open_nursery() as nursery:
            for writer in range(64):
                nursery.start_soon(write, backend, writer)
        assert len(await names(backend)) == 640
    assert sum(transactions) == 640
    assert len(transactions) <= 15, transactions


async def test_batch_is_bounded_and_leadership_is_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit_gate: Gate
) -> None:
    """The leader of a batch returns after it, even if more writers wait. One of them leads the next batch."""
    set_limit(monkeypatch, "MOST_IN_A_BATCH", 4)
    sizes = count_batches(monkeypatch)
    finished: list[int] = []
    batches_at_first: list[int] = []

    async def write(backend: Backend, writer: int) -> None:
        for index in range(3):
            await put(backend, thing(f"n{writer}-{index}"))
            if writer == 0 and index == 0:
                batches_at_first.append(len(sizes))
        finished.append(writer)

    async with open_sqlite(tmp_path / "a.db") as backend, trio.open_nursery() as nursery:
        nursery.start_soon(write, backend, 0)
        await commit_gate.reached()
        for writer in range(1, 12):
            nursery.start_soon(write, backend, writer)
        commit_gate.open()
    assert batches_at_first == [1], "the first leader led another batch"
    assert sorted(finished) == list(range(12))
    assert max(sizes) <= 4


async def test_rejected_write_fails_alone_in_its_batch(tmp_path: Path, commit_gate: Gate) -> None:
    """Each writer in a transaction has its own outcome, also one whose name cannot be stored."""
    outcomes: dict[str, object] = {}

    async def write(name: str, expected: str) -> None:
        try:
            outcomes[name] = (await put(backend, thing(name), expected)).revision
        except Exception as error:  # noqa: BLE001  # the error is compared below
            outcomes[name] = type(error)

    async with open_sqlite(tmp_path / "a.db") as backend:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, "first", "")
            await commit_gate.reached()
            for name, expected in (("a", ""), ("bad", "7"), ("bro\udc80ken", ""), ("b", "")):
                nursery.start_soon(write, name, expected)
            await trio.testing.wait_all_tasks_blocked()
            commit_gate.open()
        assert {outcomes["a"], outcomes["b"]} == {2, 3}
        assert outcomes["bad"] is VersionConflict
        assert outcomes["bro\udc80ken"] is PayloadError
        assert await names(backend) == ["a", "b", "first"]


async def test_canceled_commit_returns_its_position(tmp_path: Path, commit_gate: Gate) -> None:
    """This holds for the leader and for a waiting writer. The next checkpoint raises Cancelled."""
    returned: dict[str, Position] = {}
    canceled: list[str] = []

    async def write(name: str, scope: trio.CancelScope) -> None:
        with scope:
            returned[name] = await put(backend, thing(name))
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled:
                canceled.append(name)
                raise

    scopes = [trio.CancelScope() for _ in range(3)]
    async with open_sqlite(tmp_path / "a.db") as backend:
        async with trio.open_nursery() as nursery:
            for scope, name in zip(scopes, "abc", strict=True):
                nursery.start_soon(write, name, scope)
                await trio.testing.wait_all_tasks_blocked()
            await commit_gate.reached()
            for scope in scopes:
                scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert returned == {}, "a commit returned before its outcome was known"
            commit_gate.open()
        assert sorted(returned) == sorted(canceled) == ["a", "b", "c"]
        assert await names(backend) == ["a", "b", "c"]


@pytest.mark.parametrize("behind", [False, True])
def test_interrupted_writer_does_not_block_others(tmp_path: Path, commit_gate: Gate, behind: bool) -> None:
    """KeyboardInterrupt ignores shields: a writer interrupted while it waits is dropped, and the others continue."""
    stored: list[list[str]] = []

    @trio.lowlevel.enable_ki_protection
    async def interrupt() -> None:
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGINT)
            await trio.testing.wait_all_tasks_blocked()
            commit_gate.open()

    async def main() -> None:
        async with open_sqlite(tmp_path / "a.db") as backend:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(put, backend, thing("first"))
                    await commit_gate.reached()
                    nursery.start_soon(_shielded_put, backend, "second")
                    if behind:
                        await trio.testing.wait_all_tasks_blocked()
                    # Trio delivers an interrupt to the main task, which waits before or behind the second writer.
                    nursery.start_soon(interrupt)
                    await put(backend, thing("main"))
            finally:
                with trio.CancelScope(shield=True):
                    stored.append(await names(backend))

    with pytest.RaisesGroup(KeyboardInterrupt, flatten_subgroups=True, allow_unwrapped=True):
        trio.run(main)
    assert stored == [["first", "second"]]


def test_interrupted_leader_completes_its_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt comes before the transaction begins. It is delivered when all of the batch is stored."""
    stored: list[list[str]] = []

    async def gather_and_be_interrupted(_: object) -> None:
        monkeypatch.undo()
        for _turn in range(10):
            await trio.lowlevel.cancel_shielded_checkpoint()
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        async with open_sqlite(tmp_path / "a.db") as backend:
            replace_gathering(monkeypatch, gather_and_be_interrupted)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_shielded_put, backend, "second")
                    await put(backend, thing("first"))
            finally:
                await _shielded_put(backend, "third")
                with trio.CancelScope(shield=True):
                    stored.append(await names(backend))

    with pytest.RaisesGroup(KeyboardInterrupt, flatten_subgroups=True, allow_unwrapped=True):
        trio.run(main)
    assert stored == [["first", "second", "third"]]


async def _shielded_put(backend: Backend, name: str) -> None:
    with trio.CancelScope(shield=True):
        await put(backend, thing(name))
