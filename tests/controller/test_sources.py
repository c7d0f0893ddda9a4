"""The ready-made sources, which enqueue keys for events outside the store."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events
from headway.errors import Closed, DeclarationError, NotOnTrio
from tests.helpers.resources import Team
from tests.helpers.staff import Staff


class Sourced(Staff):
    """A controller of teams with one source."""

    def __init__(self, make: Callable[[Sourced], headway.sources.Source]) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.reasons: list[str] = []

        @self.app.controller(manages=self.team, sources={"outside": make(self)})
        async def look(_: headway.Runtime, request: headway.Request[Team]) -> None:
            self.seen.append(request.id.name)
            self.reasons += map(str, request.reasons)

    def end_run(self) -> None:
        """End the run by replacing the store."""
        run: Any = self.engine.controllers["look"].run
        for subscription in run._caches.subscriptions.values():
            subscription.fail(headway.errors.StoreChanged("replaced"))


async def test_value_sent_into_a_channel_reconciles_its_keys(autojump_clock: MockClock) -> None:
    """The keys need not be in the store. A value may have several keys or none, and equal keys are merged."""
    send, receive = trio.open_memory_channel[str](10)
    staff = Sourced(
        lambda staff: headway.sources.from_channel(
            receive, lambda names: [staff.team.id(name) for name in names.split()] if names else None
        )
    )
    async with staff.open():
        await staff.wait_idle()
        for names in ("a b", "", "a"):
            await send.send(names)
        await trio.sleep(1)
        assert sorted(set(staff.seen)) == ["a", "b"]
        assert set(staff.reasons) == {"source outside"}


async def test_next_run_continues_with_the_channel(autojump_clock: MockClock) -> None:
    send, receive = trio.open_memory_channel[str](10)
    staff = Sourced(lambda staff: headway.sources.from_channel(receive, staff.team.id))
    async with staff.open():
        await staff.wait_idle()
        staff.end_run()
        await trio.sleep(0.1)
        await send.send("a")
        await trio.sleep(10)
    assert staff.seen == ["a"]
    assert len(staff.events_of(events.RunEnded)) == 1


@pytest.mark.parametrize("wrong", [LookupError("odd"), "a name", 7])
async def test_failure_of_one_value_is_reported_and_the_others_are_handled(
    wrong: object, autojump_clock: MockClock
) -> None:
    def key(staff: Staff, name: str) -> Any:
        if name != "bad":
            return staff.team.id(name)
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    send, receive = trio.open_memory_channel[str](10)
    staff = Sourced(lambda staff: headway.sources.from_channel(receive, lambda name: key(staff, name)))
    async with staff.open():
        for name in ("bad", "a"):
            await send.send(name)
        await trio.sleep(1)
    assert staff.seen == ["a"]
    (failed,) = staff.events_of(events.SourceFailed)
    assert (failed.controller, failed.value) == ("staff/look", "bad")
    assert not staff.events_of(events.RunEnded)


async def test_end_of_an_iterator_is_no_error_but_its_exception_ends_the_run(autojump_clock: MockClock) -> None:
    rounds = 0

    async def lines() -> AsyncIterator[str]:
        nonlocal rounds
        rounds += 1
        yield str(rounds)
        if rounds == 1:
            raise LookupError("gone")

    staff = Sourced(lambda staff: headway.sources.from_iterator(lines, staff.team.id))
    async with staff.open():
        await trio.sleep(10)
    assert staff.seen == ["1", "2"]
    assert [repr(event.error) for event in staff.events_of(events.RunEnded)] == ["LookupError('gone')"]


async def test_every_reconciles_keys_periodically(autojump_clock: MockClock) -> None:
    """The default is to reconcile all managed resources, with a jitter.

    The first time is one interval after the start of the run.
    """
    staff = Sourced(lambda _: headway.sources.every(100, jitter=0.2))
    async with staff.open():
        await staff.write_team("a")
        await staff.write_team("b")
        await staff.wait_idle()
        staff.seen.clear()
        await trio.sleep(79)
        assert staff.seen == []
        await trio.sleep(42)
        assert staff.seen == ["a", "b"]
        await trio.sleep(1000)
        assert 2 * 9 <= len(staff.seen) <= 2 * 14

    other = Sourced(lambda staff: headway.sources.every(10, lambda _: [staff.team.id("new")], jitter=0))
    async with other.open():
        await trio.sleep(25)
    assert other.seen == ["new", "new"]


class Pretended:
    """A fake process that ends on request."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.waits = 0

    async def wait(self) -> int:
        self.waits += 1
        await self.ended.wait()
        return 0


async def test_exit_of_a_process_reconciles_its_key_once(autojump_clock: MockClock) -> None:
    """Watching the process repeatedly has no effect. An exit between two runs, or in the next run, counts as well."""
    exits = headway.sources.process_exits()
    staff = Sourced(lambda _: exits)
    first, second, third = Pretended(), Pretended(), Pretended()
    async with staff.open():
        for _ in range(2):
            exits.watch(staff.team.id("a"), first)
        exits.watch(staff.team.id("b", uid="incarnation"), second)
        exits.watch(staff.team.id("c"), third)
        await staff.wait_idle()
        exits.watch(staff.team.id("a"), first)
        await trio.sleep(1)
        assert staff.seen == []
        assert first.waits == 1
        first.ended.set()
        await trio.sleep(1)
        assert staff.seen == ["a"]
        staff.end_run()
        await trio.lowlevel.checkpoint()
        second.ended.set()
        await trio.sleep(10)
        third.ended.set()
        await trio.sleep(1)
        assert staff.seen == ["a", "b", "c"]
        assert exits.watched == 0


async def waits(_: str) -> None:
    """Be async, which a key function must not be."""


SEND, RECEIVE = trio.open_memory_channel[str](1)
MISUSES: list[tuple[str, Callable[[], object]]] = [
    ("channel must be a ReceiveChannel, such as `receive` of", lambda: headway.sources.from_channel(SEND, str)),  # type: ignore[arg-type]
    ("from_channel expects a function of an event to an id", lambda: headway.sources.from_channel(RECEIVE, waits)),  # type: ignore[arg-type]
    ("from_channel expects a function of an event to an id", lambda: headway.sources.from_channel(RECEIVE, "a")),  # type: ignore[arg-type]
    ("must take one argument, but takes ()", lambda: headway.sources.from_channel(RECEIVE, lambda: None)),  # type: ignore[misc, arg-type]
    ("from_iterator expects a function that returns", lambda: headway.sources.from_iterator([1], lambda _: None)),  # type: ignore[arg-type]
    ("every(): seconds must be a finite number of seconds above 0, not 0", lambda: headway.sources.every(0)),
    ("seconds must be a finite number of seconds above 0, not inf", lambda: headway.sources.every(float("inf"))),
    ("every(): jitter must be a number from 0 to below 1, such as", lambda: headway.sources.every(1, jitter=1)),
    ("every: keys needs a function of a runtime", lambda: headway.sources.every(1, lambda: [RECEIVE])),  # type: ignore[misc, arg-type]
]


@pytest.mark.parametrize(("says", "misuse"), MISUSES, ids=[str(number) for number in range(len(MISUSES))])
def test_misuse_is_refused_when_it_is_declared(says: str, misuse: Callable[[], object]) -> None:
    with pytest.raises(DeclarationError) as caught:
        misuse()
    assert says in str(caught.value)


@pytest.mark.parametrize("stubborn", [False, True])
async def test_iterator_that_never_waits_or_catches_its_cancellation_harms_nothing(*, stubborn: bool) -> None:
    """Other tasks run, each key is reconciled, and the run ends."""
    most, yielded = 2_000, 0

    async def lines() -> AsyncIterator[str]:
        nonlocal yielded
        while True:
            yielded += 1
            if stubborn:
                with contextlib.suppress(trio.Cancelled):
                    await trio.sleep(0.001)
            if yielded >= most:
                # Otherwise the test would never end without the mend.
                await trio.sleep_forever()
            yield f"a{yielded % 3}"

    staff = Sourced(lambda staff: headway.sources.from_iterator(lines, staff.team.id))
    with trio.fail_after(60):
        async with staff.open():
            while len(set(staff.seen)) < 3:
                await trio.lowlevel.checkpoint()
            at_end = yielded
    assert at_end < most
    # Cancellation reaches the loop around the iterator at the next event.
    assert yielded <= at_end + 3


async def test_enqueue_of_a_run_that_has_ended_is_refused_by_name(autojump_clock: MockClock) -> None:
    """Its queue would ignore the key, and the change would be lost. The enqueue of the next run works."""
    kept: list[headway.sources.Enqueue] = []

    async def outside(_: headway.Runtime, enqueue: headway.sources.Enqueue) -> None:
        kept.append(enqueue)

    staff = Sourced(lambda _: outside)
    async with staff.open():
        await trio.sleep(1)
        staff.end_run()
        await trio.sleep(10)
        with pytest.raises(
            Closed, match=r"source outside enqueued Team a after its run of staff/look had ended: the next run"
        ):
            kept[0](staff.team.id("a"))
        with pytest.raises(NotOnTrio, match=r"from another thread.*trio\.from_thread\.run_sync\(enqueue, id\)"):
            await trio.to_thread.run_sync(kept[1], staff.team.id("b"))
        await trio.to_thread.run_sync(trio.from_thread.run_sync, kept[1], staff.team.id("c"))
        await staff.wait_idle()
    assert staff.seen == ["c"]
