"""Checks under concurrent writers: snapshots and tails, resuming, and agreement of reads (promises 1, 2, 5, 8)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import trio

from headway.resource import Key, Position, pb, resource_key
from headway.storage import Backend, Within
from headway.testing.conformance._reader import Held, Reader, held, reading, summary
from headway.testing.conformance._tools import (
    EVERYTHING,
    KIND,
    OTHER_KIND,
    fill,
    must,
    name_of,
    names,
    put,
    putting,
    thing,
)
from headway.testing.conformance._truth import WRITERS, Truth, owner_of, written_by

T = TypeVar("T")

_FOLLOWED = 24
"""The number of watches that are followed to the end, of all that were opened."""


async def a_snapshot_joined_with_its_tail_has_no_gap_and_no_repeat(backend: Backend) -> None:
    """Watches opened at any moment under writers have the snapshot of their position, and end with what is stored."""
    truth = Truth()
    readers: list[Reader] = []

    async def watch_often() -> None:
        while not truth.done:
            reader = await reading(backend)
            await reader.until_snapshot()
            readers.append(reader)

    async with truth.writing(backend) as lookers:
        lookers.start_soon(watch_often)
        lookers.start_soon(watch_often)
    found, here = await backend.list(KIND, EVERYTHING)
    for reader in _some(readers):
        begun = await reader.until_snapshot()
        must(reader.snapshot == truth.at(begun), "a snapshot is not what was stored at its position")
        await reader.until(here.revision)
        must(reader.held == held(found), "snapshot and tail together differ from what is stored")
        must(summary(reader.changes) == truth.after(begun), "the tail is not exactly the commits after the snapshot")


async def a_filtered_snapshot_joined_with_its_tail_has_no_gap_and_no_repeat(backend: Backend) -> None:
    """A filtered watch under writers delivers exactly what happens to its part."""
    truth = Truth()
    readers: list[tuple[str, Reader]] = []

    async def watch_often(writer: str) -> None:
        while not truth.done:
            reader = await reading(backend, Within(namespace="default", name_prefix=writer))
            await reader.until_snapshot()
            readers.append((writer, reader))

    async with truth.writing(backend) as lookers:
        for writer in WRITERS[:2]:
            lookers.start_soon(watch_often, writer)
    here = backend.position
    for writer, reader in _some(readers):
        begun = await reader.until_snapshot()
        must(
            reader.snapshot == written_by(writer, truth.at(begun)),
            "a filtered snapshot is not its part of what was stored",
        )
        await reader.until(here.revision)
        after = [change for change in truth.after(begun) if change[1].startswith(writer)]
        must(
            summary(reader.changes) == after,
            "a filtered tail is not exactly its part of the commits after the snapshot",
        )


async def a_large_snapshot_is_of_one_revision(backend: Backend) -> None:
    """A snapshot delivered in pieces while others write is what was stored at its position."""
    await fill(backend, 1500)
    before = held((await backend.list(KIND, EVERYTHING))[0])
    truth = Truth()
    readers: list[Reader] = []

    async def watch_slowly() -> None:
        while not truth.done:
            reader = await reading(backend)
            while reader.snapshot_at is None:
                await reader.next()
                for _ in range(5):
                    await trio.lowlevel.checkpoint()
            readers.append(reader)

    async with truth.writing(backend, steps=60) as lookers:
        lookers.start_soon(watch_slowly)
    for reader in _some(readers):
        stood = before | truth.at(await reader.until_snapshot())
        must(reader.snapshot == stood, "a large snapshot is not what was stored at one revision")


async def a_watch_resumes_after_every_revision_while_others_write(backend: Backend) -> None:
    """A watch resumed after any kept revision, while others write, delivers exactly the changes after it."""
    truth, choose = Truth(), random.Random(1)
    first = backend.position
    readers: list[tuple[Position, Reader]] = []

    async def resume_often() -> None:
        while not truth.done:
            here = backend.position
            after = here._replace(revision=choose.randint(first.revision, here.revision))
            reader = await reading(backend, after=after)
            readers.append((after, reader))
            await reader.next()
            must(reader.bookmarks[:1] and reader.bookmarks[0].position == after, "a watch resumed at another position")

    async with truth.writing(backend) as lookers:
        lookers.start_soon(resume_often)
        lookers.start_soon(resume_often)
    here = backend.position
    # Some positions are resumed from a second time.
    again = [(after, await reading(backend, after=after)) for after, _ in readers[:3]]
    for after, reader in [*_some(readers), *again]:
        await reader.until(here.revision)
        must(
            summary(reader.changes) == truth.after(after),
            f"resumed after {after.revision}: not exactly the later changes",
        )


async def a_watch_resumed_often_misses_and_repeats_nothing(backend: Backend) -> None:
    """A watch that is closed at any moment and resumed from its position, over and over, misses and repeats nothing."""
    truth = Truth()
    first = await reading(backend)
    begun = await first.until_snapshot()
    delivered: list[tuple[int, str, bool]] = []
    stands = begun

    async def leave_and_resume() -> None:
        nonlocal stands
        while not truth.done:
            reader = await reading(backend, after=stands)
            while len(reader.changes) < 3 and not truth.done:
                await reader.next()
                stands = stands._replace(revision=reader.frontier or 0)
            delivered.extend(summary(reader.changes))
            reader.watch.close()

    async with truth.writing(backend) as lookers:
        lookers.start_soon(leave_and_resume)
        # A last write wakes every task that waits for a change.
        lookers.start_soon(_write_when_done, backend, truth)
    last = await reading(backend, after=stands)
    await last.until(backend.position.revision)
    delivered.extend(change for change in summary(last.changes) if change[1] != "last")
    must(
        [each for each in delivered if each[1] != "last"] == truth.after(begun),
        "resumed often: not exactly the later changes",
    )


async def _write_when_done(backend: Backend, truth: Truth) -> None:
    await truth.ended.wait()
    await put(backend, thing("last"))


async def a_read_returns_the_state_at_its_position(backend: Backend) -> None:
    """A read of one key, a list and a list by owner, made while others write, return the state at their position."""
    truth = Truth()
    seen: list[tuple[str, Position, Held, str]] = []

    async def look(writer: str) -> None:
        while not truth.done:
            key = ("default", "default", f"{writer}a")
            one, at = await backend.read(KIND, key)
            seen.append(("read", at, held([one] if one is not None else []), key[2]))
            found, at = await backend.list(KIND, Within(name_prefix=writer))
            seen.append(("list", at, held(found), writer))
            found, at = await backend.list_by_owner(owner_of(writer))
            seen.append(("list by owner", at, held(found), writer))

    async with truth.writing(backend) as lookers:
        for writer in WRITERS[:2]:
            lookers.start_soon(look, writer)
    for way, at, found_then, prefix in seen[:: max(1, len(seen) // 300)]:
        wanted = written_by(prefix, truth.at(at))
        must(found_then == wanted, f"a {way} is not what was stored at its revision {at.revision}")


async def a_later_read_never_has_a_lower_position(backend: Backend) -> None:
    """Reads, lists, lists by owner and new watches, made in turn while others write, never have a lower position than
    before.
    """
    truth = Truth()

    async def look() -> None:
        last, ended = backend.position, False
        # Once more when the writers have ended: a reader that lags behind them stands still then.
        while not ended:
            ended = truth.done
            for way in ("read", "list", "list by owner", "new watch", "store itself"):
                at = await _position_of(backend, way)
                must(at.revision >= last.revision, f"a {way} is at {at.revision}, after {last.revision} was seen")
                last = at

    async with truth.writing(backend) as lookers:
        lookers.start_soon(look)
        lookers.start_soon(look)


async def _position_of(backend: Backend, way: str) -> Position:
    match way:
        case "read":
            return (await backend.read(KIND, ("default", "default", "ua")))[1]
        case "list":
            return (await backend.list(KIND, EVERYTHING))[1]
        case "list by owner":
            return (await backend.list_by_owner(owner_of("u")))[1]
        case "new watch":
            return await (await reading(backend)).until_snapshot()
        case _:
            return backend.position


async def a_delivered_change_is_in_every_later_read(backend: Backend) -> None:
    """After a change was delivered, reads, lists, lists by owner and new watches have its revision or a later one."""
    truth = Truth()

    async def receive() -> None:
        reader = await reading(backend)
        delivered = ""
        # The last change is written after all others: a reader that lags behind stands still then.
        while delivered != "last":
            await reader.next()
            if reader.changes:
                delivered = name_of(reader.changes[-1].resource)
                for way in ("read", "list", "list by owner", "new watch"):
                    at = await _position_of(backend, way)
                    said = reader.changes[-1].revision
                    must(at.revision >= said, f"a {way} is at {at.revision}, but {said} was already delivered")

    async with truth.writing(backend) as lookers:
        lookers.start_soon(receive)
        lookers.start_soon(_write_when_done, backend, truth)


async def a_commit_is_never_seen_in_part(backend: Backend) -> None:
    """Two resources that are always written together are found together by lists, lists by owner and watches."""
    done = False
    pair = ("left", "right")

    async def write() -> None:
        nonlocal done
        versions = ["", ""]
        for _ in range(40):
            puts = [
                putting(thing(name, uid=f"uid-of-{name}", owner_uid="both"), version)
                for name, version in zip(pair, versions, strict=True)
            ]
            versions = [str((await backend.commit(puts)).revision)] * 2
        done = True

    def same(found: Sequence[pb.Resource], way: str) -> None:
        must(len(found) in (0, 2), f"a {way} found one of two resources that are written together")
        must(
            len({each.version for each in found}) <= 1,
            f"a {way} found two resources of one commit at different versions",
        )

    async def look() -> None:
        while not done:
            same((await backend.list(KIND, EVERYTHING))[0], "list")
            same((await backend.list_by_owner("both"))[0], "list by owner")
            reader = await reading(backend)
            await reader.until_snapshot()
            must(len({version for _, version in reader.held.values()}) <= 1, "a snapshot holds a part of a commit")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        nursery.start_soon(look)
        await write()


async def pages_contain_every_resource_that_stays(backend: Backend) -> None:
    """Pages read while others write contain every resource that stays exactly once, in order."""
    # The resources that come and go are sorted before the others, so that paging by offset is found out.
    await fill(backend, 60, "z")
    stay = set(await names(backend))
    truth = Truth()

    async def page() -> None:
        while not truth.done:
            found: list[Key] = []
            after: Key | None = None
            while part := (await backend.list(KIND, EVERYTHING, after=after, limit=7))[0]:
                found += [resource_key(resource) for resource in part]
                must(after is None or found[-1] > after, "pages are not in order, or repeat a resource")
                after = found[-1]
            must(found == sorted(set(found)), "pages are not in order, or repeat a resource")
            must(stay <= {key[2] for key in found}, "pages skipped a resource that was there all the time")

    async with truth.writing(backend) as lookers:
        lookers.start_soon(page)
        lookers.start_soon(page)


async def lists_by_owner_agree_with_lists(backend: Backend) -> None:
    """After any writes, deletions and new incarnations, list_by_owner() agrees with list(), and kinds() is complete."""
    truth = Truth()
    async with truth.writing(backend):
        pass
    for index in range(5):
        await put(backend, thing(f"other{index}", kind=OTHER_KIND, owner_uid=owner_of("u")))
    everything = [each for kind in await backend.kinds() for each in (await backend.list(kind, EVERYTHING))[0]]
    must(len(everything) == len(truth.at(backend.position)) + 5, "kinds() does not return every kind with resources")
    for writer in WRITERS:
        owned, _ = await backend.list_by_owner(owner_of(writer))
        wanted = [each for each in everything if each.owner is not None and each.owner.uid == owner_of(writer)]
        must(
            sorted(map(_place, owned)) == sorted(map(_place, wanted)),
            f"list_by_owner() differs from list() for {owner_of(writer)}",
        )


def _place(resource: pb.Resource) -> tuple[str, Key, str]:
    type = resource.id.type if resource.id is not None else None
    return (type.kind if type is not None else "", resource_key(resource), resource.version)


async def a_closed_watch_affects_no_other(backend: Backend) -> None:
    """Watches that are closed or canceled under writers take nothing from those that stay."""
    truth = Truth()
    stays = await reading(backend)
    begun = await stays.until_snapshot()

    async def come_and_go() -> None:
        while not truth.done:
            reader = await reading(backend)
            await reader.until_snapshot()
            with trio.move_on_after(0):
                await reader.next()
            reader.watch.close()

    async with truth.writing(backend) as lookers:
        lookers.start_soon(come_and_go)
    await stays.until(backend.position.revision)
    must(summary(stays.changes) == truth.after(begun), "a watch missed or repeated changes when others were closed")


def _some(all_of_them: Sequence[T]) -> Sequence[T]:
    return all_of_them[:: max(1, len(all_of_them) // _FOLLOWED)]
