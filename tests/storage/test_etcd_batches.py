"""The batching of commits into etcd transactions, tested without etcd."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import trio
from trio.testing import MockClock

from headway._gen.etcdserverpb import ResponseHeader
from headway.errors import OutcomeUnknown, Unavailable
from headway.resource import resource_key
from headway.storage import Require, RequireOwnsNothing
from headway.storage._timeline import Timeline
from headway.storage.etcd._batcher import (
    LONGEST_WAIT,
    MOST_BYTES,
    MOST_OPERATIONS,
    MOST_UNDER_WAY,
    SHARED_BY_ALL,
    Batcher,
)
from headway.storage.etcd.layout import Draft, Head, Layout, Mirror, TransactionReply, revision_of
from headway.storage.etcd.layout import putting as putting_key
from headway.testing.conformance import kind_of, putting, thing

LAYOUT = Layout("/p")


def draft(*names: str, size: int = 0) -> Draft:
    """Return a commit that creates these resources."""
    mirror = Mirror(LAYOUT, "s", Timeline(((0, "a"),)), Head(0, 1, (0,), b""), Counter(), max_changes=9, max_age=9)
    committed = Draft(LAYOUT, mirror)
    operations = [putting(thing(name, "x" * size)) for name in names]
    committed.compare(operations)
    committed.apply([(each.kind, each.key, None, each.resource) for each in operations])
    return committed


class Etcd:
    """A stand-in that holds each transaction until the test releases it."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.go_on = trio.Event()
        self.error: BaseException | None = None

    async def write(self, drafts: Sequence[Draft]) -> TransactionReply:
        self.asked.append(len(drafts))
        revision = len(self.asked)
        with trio.CancelScope(shield=True):
            await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return TransactionReply(header=ResponseHeader(revision=revision), succeeded=True)


async def test_transactions_in_flight_are_bounded_and_the_rest_is_batched() -> None:
    etcd, committed = Etcd(), list[int]()
    batcher = Batcher(etcd.write)

    async def submit(each: Draft) -> None:
        reply = await batcher.submit(each)
        assert reply is not None
        committed.append(reply)

    async with trio.open_nursery() as nursery:
        for index in range(MOST_UNDER_WAY):
            nursery.start_soon(submit, draft(f"first{index}"))
            await trio.testing.wait_all_tasks_blocked()
        for index in range(10):
            nursery.start_soon(submit, draft(f"n{index}"))
            await trio.testing.wait_all_tasks_blocked()
        assert etcd.asked == [1] * MOST_UNDER_WAY
        etcd.go_on.set()
    assert etcd.asked == [*[1] * MOST_UNDER_WAY, 10]
    assert len(set(committed)) == MOST_UNDER_WAY + 10
    last = MOST_UNDER_WAY + 1
    assert sorted(committed)[-10:] == [revision_of(last, place) for place in range(10)]


@pytest.mark.parametrize(
    ("drafts", "asked"),
    [
        ([draft(f"n{index}") for index in range(2 * MOST_OPERATIONS)], [MOST_OPERATIONS - 2, 51, SHARED_BY_ALL, 19]),
        ([draft(*(f"n{index}-{part}" for part in range(40))) for index in range(3)], [2, 1]),
        ([draft(f"n{index}", size=MOST_BYTES // 5) for index in range(6)], [4, 2]),
        ([draft(f"n{index}", size=MOST_BYTES // 4) for index in range(3)], [1, 1, 1]),
        ([draft("same") for _ in range(4)], [1, 1, 1, 1]),
        ([draft("a"), draft("b", "a"), draft("b")], [2, 1]),
    ],
    ids=["writers", "operations", "bytes", "large ones", "of one key", "of some"],
)
async def test_transaction_never_exceeds_the_limits_of_etcd(drafts: list[Draft], asked: list[int]) -> None:
    """A commit that does not fit with the others goes alone, without waiting."""
    etcd = Etcd()
    batcher = Batcher(etcd.write)
    async with trio.open_nursery() as nursery:
        for each in (*(draft(f"first{index}") for index in range(MOST_UNDER_WAY)), *drafts):
            nursery.start_soon(batcher.submit, each)
            await trio.testing.wait_all_tasks_blocked()
        etcd.go_on.set()
    assert sorted(etcd.asked) == sorted([*[1] * MOST_UNDER_WAY, *asked])


async def test_commit_that_depends_on_one_in_flight_goes_alone() -> None:
    """It was decided on before that one ended, and would most likely get its whole batch rejected."""
    etcd = Etcd()
    batcher = Batcher(etcd.write)
    async with trio.open_nursery() as nursery:
        for each in (draft("hot"), draft("hot"), draft("other")):
            nursery.start_soon(batcher.submit, each)
            await trio.testing.wait_all_tasks_blocked()
        assert etcd.asked == [1, 1, 1]
        etcd.go_on.set()


async def test_waiting_commit_goes_alone_after_a_conflicting_one_was_sent() -> None:
    """The large commit is sent at once, before the commits that wait."""
    asked: list[int] = []
    answered = [trio.Event() for _ in range(MOST_UNDER_WAY + 3)]

    async def write(drafts: Sequence[Draft]) -> TransactionReply:
        asked.append(len(drafts))
        await answered[len(asked) - 1].wait()
        return TransactionReply(header=ResponseHeader(revision=len(asked)), succeeded=True)

    batcher = Batcher(write)
    first = [draft(f"first{index}") for index in range(MOST_UNDER_WAY)]
    async with trio.open_nursery() as nursery:
        for each in (*first, draft("a"), draft("hot"), draft("b"), draft("hot", size=MOST_BYTES)):
            nursery.start_soon(batcher.submit, each)
            await trio.testing.wait_all_tasks_blocked()
        answered[0].set()
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(asked) == [*[1] * (MOST_UNDER_WAY + 2), 2]
        for each_call in answered:
            each_call.set()


async def test_batch_of_an_interrupted_writer_gets_unknown_outcome() -> None:
    """No writer of the batch is left waiting."""
    etcd = Etcd()
    etcd.error = KeyboardInterrupt()
    etcd.go_on.set()
    batcher = Batcher(etcd.write)
    errors: list[str] = []

    async def submit(index: int) -> None:
        try:
            await batcher.submit(draft(f"n{index}"))
        except (OutcomeUnknown, KeyboardInterrupt) as error:
            errors.append(type(error).__name__)

    async with trio.open_nursery() as nursery:
        for index in range(4):
            nursery.start_soon(submit, index)
    assert sorted(errors) == ["KeyboardInterrupt", *["OutcomeUnknown"] * 3]
    etcd.error = None
    assert await batcher.submit(draft("again")) is not None


async def test_writer_canceled_while_waiting_writes_nothing_and_does_not_block_others() -> None:
    etcd = Etcd()
    batcher = Batcher(etcd.write)
    async with trio.open_nursery() as nursery:
        for index in range(MOST_UNDER_WAY):
            nursery.start_soon(batcher.submit, draft(f"first{index}"))
            await trio.testing.wait_all_tasks_blocked()
        scope = trio.CancelScope()

        async def leave() -> None:
            with scope:
                await batcher.submit(draft("left"))

        nursery.start_soon(leave)
        await trio.testing.wait_all_tasks_blocked()
        for index in range(3):
            nursery.start_soon(batcher.submit, draft(f"n{index}"))
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        etcd.go_on.set()
    assert etcd.asked == [*[1] * MOST_UNDER_WAY, 3]


async def test_writers_time_out_when_etcd_does_not_answer(autojump_clock: MockClock) -> None:
    """A commit that has not been sent before its timeout is not sent, and its writer gets an error.

    This holds for any number of waiting commits.
    """
    etcd, call, errors = Etcd(), 10.0, Counter[str]()

    async def hang(drafts: Sequence[Draft]) -> TransactionReply:
        etcd.asked.append(len(drafts))
        await trio.sleep(call)
        raise OutcomeUnknown("no answer")

    batcher = Batcher(hang)

    async def submit(index: int) -> None:
        try:
            await batcher.submit(draft(f"n{index}"))
        except (OutcomeUnknown, Unavailable) as error:
            errors[type(error).__name__] += 1

    async with trio.open_nursery() as nursery:
        for index in range(10 * MOST_OPERATIONS):
            nursery.start_soon(submit, index)
    assert autojump_clock.current_time() <= LONGEST_WAIT + 2 * call
    assert sum(etcd.asked) == errors["OutcomeUnknown"]
    assert sum(errors.values()) == 10 * MOST_OPERATIONS
    assert errors["Unavailable"]


def test_only_independent_commits_share_a_transaction() -> None:
    first, other, same = draft("a"), draft("b"), draft("a")
    requires = draft("c")
    requires.compare([Require(kind_of(thing("a")), resource_key(thing("a")), "uid")])
    assert other.fits_with(first.compared, first.places)
    for each in (same, requires):
        assert not each.fits_with(first.compared, first.places)
    assert not first.fits_with(requires.compared, requires.places)
    # Two commits may share a key that both only read, if both have read the same state.
    shared = {**other.compared, b"/p/fence/c/": 7}
    first.compared[b"/p/fence/c/"] = 7
    assert first.fits_with(shared, other.places)
    first.compared[b"/p/fence/c/"] = 8
    assert not first.fits_with(shared, other.places)


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it.write(putting_key(b"k")),
        lambda it: it.end_lease("c"),
        lambda it: it.begin_checkpoint("c", "m", None),
        lambda it: it.note(b"k", b"1"),
        lambda it: it.compare([RequireOwnsNothing("uid")]),
    ],
    ids=["writes a fence", "ends a lease", "begins a checkpoint", "notes", "requires that nothing is owned"],
)
def test_commit_that_touches_more_than_resources_goes_alone(change: Callable[[Draft], None]) -> None:
    it = draft("a")
    assert it.fits_with({}, set())
    change(it)
    assert not it.fits_with({}, set())
    assert it.alone


@pytest.mark.parametrize(("writers", "asked"), [(20, [20] * 10), (64, [32] * 20)])
async def test_writers_in_a_loop_share_transactions_of_even_size(
    autojump_clock: MockClock, writers: int, asked: list[int]
) -> None:
    """No transaction goes with one commit because its writer was the first to run. Many writers fill two at a time."""
    etcd = Etcd()

    async def answer(drafts: Sequence[Draft]) -> TransactionReply:
        etcd.asked.append(len(drafts))
        await trio.sleep(0.001)
        return TransactionReply(header=ResponseHeader(revision=len(etcd.asked)), succeeded=True)

    batcher = Batcher(answer)

    async def write(writer: int) -> None:
        for index in range(10):
            assert await batcher.submit(draft(f"n{writer}-{index}")) is not None

    async with trio.open_nursery() as nursery:
        for writer in range(writers):
            nursery.start_soon(write, writer)
    assert etcd.asked == asked
    assert autojump_clock.current_time() < 1


async def test_writer_canceled_after_its_commit_was_sent_gets_the_outcome() -> None:
    """A cancellation reaches neither the writer that sends the batch nor one that shares it."""
    etcd = Etcd()
    batcher = Batcher(etcd.write)
    committed = list[int | None]()
    scopes = [trio.CancelScope() for _ in range(3)]

    async def submit(index: int) -> None:
        with scopes[index]:
            committed.append(await batcher.submit(draft(f"n{index}")))

    async with trio.open_nursery() as nursery:
        for index in range(3):
            nursery.start_soon(submit, index)
        await trio.testing.wait_all_tasks_blocked()
        for scope in scopes:
            scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert not committed
        etcd.go_on.set()
    assert etcd.asked == [3]
    assert set(filter(None, committed)) == {revision_of(1, place) for place in range(3)}
