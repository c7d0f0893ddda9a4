"""Checks of leases: terms, holders, expiry, and what is left of an ended term (promises 9, 10)."""

from __future__ import annotations

from itertools import pairwise

import trio

from headway.storage import Acquired, Backend, Fence, FenceLowered, TermEnded
from headway.testing.conformance._reader import reading
from headway.testing.conformance._tools import must, names, put, refused, thing

LONG = 600.0
"""A ttl, in seconds, longer than any check."""

SHORT = 0.05
"""A ttl, in seconds, short enough to wait for."""


async def _acquire(backend: Backend, name: str = "c", holder: str = "a", ttl: float = LONG, attempt: str = "") -> int:
    """Acquire a lease, which must be free, and return its term."""
    acquired = await backend.acquire_lease(name, holder, ttl, attempt)
    must(acquired.acquired, f"{holder} could not acquire {name}")
    return acquired.held.lease.term


async def _held(backend: Backend, prefix: str = "") -> list[tuple[str, str, int]]:
    held, _ = await backend.list_leases(prefix)
    return [(each.lease.name, each.lease.holder, each.lease.term) for each in held]


async def a_lease_is_acquired_by_a_commit(backend: Backend) -> None:
    """Acquiring a lease makes a revision that every watch reaches. The lease has the holder, ttl and term that were
    granted.
    """
    reader = await reading(backend)
    before = await reader.until_snapshot()
    acquired = await backend.acquire_lease("c#m", "a", LONG)
    held = acquired.held
    must(acquired.acquired, "a free lease could not be acquired")
    must(
        (held.lease.name, held.lease.holder, held.lease.ttl) == ("c#m", "a", LONG), "the lease is not the one requested"
    )
    must(held.lease.term >= 1, "the term is not >= 1")
    must(LONG - 60 < held.remaining <= LONG, "the remaining time of a new lease is not its ttl")
    must(acquired.position.revision > before.revision, "acquiring a lease made no revision")
    must(backend.position == acquired.position, "the store's position is not the acquired lease")
    await reader.until(acquired.position.revision)
    must(reader.changes == [], "a lease was delivered as a change of a resource")


async def terms_only_grow(backend: Backend) -> None:
    """Each term is higher than the one before, no matter how that one ended.

    A new request by the same holder, or raising the fence, ends a term like anything else.
    """
    terms = [(await backend.raise_fence("c", "", 0, 0)).fence.term, await _acquire(backend)]
    terms.append(await _acquire(backend))
    await backend.release_lease("c", "a", terms[-1])
    terms.append(await _acquire(backend, holder="b", ttl=SHORT))
    await backend.wait_lease_ended("c", terms[-1])
    terms.append(await _acquire(backend, holder="b"))
    await backend.release_lease("c", "b", terms[-1])
    terms.append((await backend.raise_fence("c", "", 0, 0)).fence.term)
    terms.append(await _acquire(backend))
    for earlier, later in pairwise(terms):
        must(earlier < later, f"term {later} came after term {earlier}")


async def a_held_lease_is_not_granted_again(backend: Backend) -> None:
    """While a lease is held, another request gets its holder, term and remaining time, and makes no revision. Other
    names are free.
    """
    term = await _acquire(backend)
    here = backend.position
    for attempt in ("", "attempt"):
        other = await backend.acquire_lease("c", "b", LONG, attempt)
        must(not other.acquired, "a second holder acquired a lease that is held")
        must(
            (other.held.lease.holder, other.held.lease.term) == ("a", term),
            "the reply does not name the holder and its term",
        )
        must(0 < other.held.remaining <= LONG, "a held lease has no remaining time")
    must(backend.position == here, "a failed request made a revision")
    for name in ("c#m", "other"):
        must(await _acquire(backend, name, "b") >= 1, "another lease could not be acquired")


async def a_repeated_request_has_a_term_of_its_own(backend: Backend) -> None:
    """No term is granted twice, so a late release or renewal of an earlier term neither ends nor extends the lease."""
    first = await _acquire(backend, attempt="one")
    second = await _acquire(backend, attempt="one")
    must(second > first, f"a repeated request got term {second} after term {first}")
    here = backend.position
    await backend.release_lease("c", "a", first)
    must(await _held(backend) == [("c", "a", second)], "a late release ended the term of a later request")
    must(not (await backend.acquire_lease("c", "b", LONG)).acquired, "a late release freed a lease that is held")
    await refused(TermEnded, backend.keep_lease("c", "a", first), "a late renewal")
    must(
        not (await backend.acquire_lease("c", "b", LONG, "one")).acquired, "another holder's attempt acquired the lease"
    )
    must(backend.position == here, "late requests made a revision")
    await backend.release_lease("c", "a", second)
    must(await _acquire(backend, attempt="one") > second, "a term that had ended was granted again")


async def a_late_request_does_not_end_a_term_in_use(backend: Backend) -> None:
    """After the first renewal or the first raise, a repetition of the request is rejected, and the term goes on."""
    for attempt in ("kept", "raised"):
        term = await _acquire(backend, attempt=attempt)
        if attempt == "kept":
            await backend.keep_lease("c", "a", term)
        else:
            await backend.raise_fence("c", "", term, 1)
        here = backend.position
        late = await backend.acquire_lease("c", "a", LONG, attempt)
        must(not late.acquired, f"a late request acquired a lease in use ({attempt})")
        must((late.held.lease.holder, late.held.lease.term) == ("a", term), "the reply does not name the term in use")
        must(backend.position == here, "a late request made a revision")
        await backend.keep_lease("c", "a", term)
        await put(backend, thing(attempt), fence=Fence("c", "", term, 1))
    for _ in range(2):
        # The first reply may have been lost: the new term is not in use, although the one before was.
        later = await _acquire(backend, attempt="next")
        must(later > term, "the holder's next attempt has no higher term")
        term = later
    must(await _acquire(backend) > term, "a request without an attempt has no higher term")


async def one_of_many_requests_gets_the_lease(backend: Backend) -> None:
    """If many processes request a lease at once, one gets it, and the others get the name of its holder."""
    answers: list[Acquired] = []

    async def ask(holder: int) -> None:
        answers.append(await backend.acquire_lease("c", f"holder-{holder}", LONG))

    async with trio.open_nursery() as nursery:
        for holder in range(16):
            nursery.start_soon(ask, holder)
    must(
        sum(answer.acquired for answer in answers) == 1, "not exactly one of many concurrent requests got a free lease"
    )
    holders = {(answer.held.lease.holder, answer.held.lease.term) for answer in answers}
    must(len(holders) == 1, f"concurrent requests got several holders: {holders}")


async def _must_have_ended(backend: Backend, term: int, how: str) -> None:
    """Check that every write in this term of "c" is rejected."""
    before = await names(backend)
    for number in (0, 1, 7):
        late = put(backend, thing(f"late-{term}-{number}"), fence=Fence("c", "", term, number))
        await refused(FenceLowered, late, f"a write of a term that {how}")
    await refused(FenceLowered, backend.commit([], Fence("c", "", term, 9)), f"an empty commit in a term that {how}")
    await refused(FenceLowered, backend.raise_fence("c", "", term, 9), f"a raise in a term that {how}")
    await refused(
        FenceLowered, backend.record_checkpoint(Fence("c", "", term, 9), 1), f"a checkpoint in a term that {how}"
    )
    must(await names(backend) == before, f"a write of a term that {how} was stored")


async def no_write_of_a_term_is_stored_after_another_holder_acquires(backend: Backend) -> None:
    """After another holder acquires the lease, every write of the old term is rejected, even before the new one raises
    its fence.
    """
    term = await _acquire(backend, ttl=SHORT)
    await backend.raise_fence("c", "", term, 1)
    await backend.wait_lease_ended("c", term)
    later = await _acquire(backend, holder="b")
    await _must_have_ended(backend, term, "was followed by another holder's")
    await put(backend, thing("in time"), fence=Fence("c", "", later, 0))


async def no_write_of_a_term_is_stored_after_its_holder_acquires_again(backend: Backend) -> None:
    """After a holder acquires its own lease again, every write of its old term is rejected."""
    term = await _acquire(backend)
    await backend.raise_fence("c", "", term, 1)
    await put(backend, thing("in time"), fence=Fence("c", "", term, 1))
    await _acquire(backend)
    await _must_have_ended(backend, term, "its holder has replaced")


async def no_write_of_a_term_is_stored_after_its_release(backend: Backend) -> None:
    """After a release, every write of the term is rejected, with or without a successor."""
    term = await _acquire(backend)
    await backend.raise_fence("c", "", term, 1)
    before = backend.position
    await backend.release_lease("c", "a", term)
    must(backend.position.revision > before.revision, "a release made no revision")
    must(await _held(backend) == [], "a released lease is listed")
    await _must_have_ended(backend, term, "was released")


async def no_write_of_a_term_is_stored_after_it_expired(backend: Backend) -> None:
    """After a lease expires, every write of its term is rejected, with or without a successor. Other leases go on."""
    other = await _acquire(backend, "d", "b")
    term = await _acquire(backend, ttl=SHORT)
    await backend.raise_fence("c", "", term, 1)
    await backend.wait_lease_ended("c", term)
    must(await _held(backend) == [("d", "b", other)], "the listed leases are not those that are held")
    await _must_have_ended(backend, term, "has expired")
    await put(backend, thing("in time"), fence=Fence("d", "", other, 0))


async def a_raise_is_in_the_term_of_its_lease(backend: Backend) -> None:
    """While a lease is held, a raise of its fence in any other term, including 0, is FenceLowered. Other fences are
    unaffected.
    """
    term = await _acquire(backend)
    for wrong in (0, term - 1, term + 1, term + 100):
        await refused(
            FenceLowered, backend.raise_fence("c", "", wrong, 5), f"a raise in term {wrong} while term {term} is held"
        )
    await refused(FenceLowered, backend.raise_fence("c", "", term, 0), "a raise of a new lease's fence to where it is")
    for number in (1, 2, 5):
        raised = await backend.raise_fence("c", "", term, number)
        must(raised.fence == Fence("c", "", term, number), "the stored fence differs from the one given")
    must(raised.checkpoint > 0, "a lease's fence has no checkpoint")
    must((await backend.raise_fence("c", "members/m", 0, 0)).fence.term == 1, "a lease raised another member's fence")
    await backend.release_lease("c", "a", term)
    must((await backend.raise_fence("c", "", 0, 0)).fence.term > term, "a run without a lease has no higher term")


async def terms_rise_when_the_keys_are_divided_in_another_way(backend: Backend) -> None:
    """A new term of a member, with a lease or without one, is above the terms of all members that divided the
    controller's keys in another way: `headway.storage.next_term`. Members of one division don't raise each other.
    """
    await backend.raise_fence("c", "0/2", 7, 0)
    for alone in ("1/2", "members/a"):
        found = (await backend.raise_fence("c", alone, 0, 0)).fence.term
        must(found == 1, f"expected term 1 of {alone}, which shares no key with 0/2, got {found}")
    terms = [7, await _acquire(backend, "c")]
    for member in ("b", "1/2", "0/3", "b"):
        terms.append((await backend.raise_fence("c", member, 0, 0)).fence.term)
    terms.append(await _acquire(backend, "c#1/3"))
    await backend.release_lease("c", "a", terms[1])
    terms.append(await _acquire(backend, "c"))
    must(sorted(set(terms)) == terms, f"expected terms that rise with each other division of the keys, got {terms}")
    other = (await backend.raise_fence("d", "", 0, 0)).fence.term
    must(other == 1, f"expected term 1 of another controller, got {other}")


async def a_members_fence_is_governed_by_its_own_lease(backend: Backend) -> None:
    """The lease "c#m" governs the fence of controller c and member m, and "c" the fence of c without a member."""
    whole, part = await _acquire(backend), await _acquire(backend, "c#m", "b")
    await refused(FenceLowered, backend.raise_fence("c", "m", 0, 0), "a raise in term 0 while a member's lease is held")
    await backend.raise_fence("c", "m", part, 1)
    await backend.release_lease("c", "a", whole)
    await put(backend, thing("in time"), fence=Fence("c", "m", part, 1))
    await backend.release_lease("c#m", "b", part)
    await refused(FenceLowered, put(backend, thing("late"), fence=Fence("c", "m", part, 9)), "a member's late write")


async def a_lease_is_renewed_by_its_holder_alone(backend: Backend) -> None:
    """A lease is renewed by its holder in its term, without a commit. Any other renewal is TermEnded."""
    term = await _acquire(backend)
    here = backend.position
    await trio.sleep(0.01)
    before, _ = await backend.list_leases()
    await backend.keep_lease("c", "a", term)
    after, _ = await backend.list_leases()
    must(before[0].remaining < LONG, "the remaining time of a lease does not shrink")
    must(after[0].remaining > before[0].remaining, "a renewed lease has no more time than before")
    for holder, wrong in (("b", term), ("a", term + 1), ("a", term - 1)):
        await refused(
            TermEnded, backend.keep_lease("c", holder, wrong), "a renewal by another holder or in another term"
        )
    must(await _held(backend) == [("c", "a", term)], "a renewed lease is not held")
    must(backend.position == here, "a renewal made a revision")
    must(await _acquire(backend) > term, "the next term is not higher")
    await refused(TermEnded, backend.keep_lease("c", "a", term), "a renewal of an earlier term")


async def an_ended_lease_cannot_be_renewed(backend: Backend) -> None:
    """A renewal does not acquire a lease that has expired or was released. A late release does not end a later term."""
    ended = [await _acquire(backend, ttl=SHORT)]
    await backend.wait_lease_ended("c", ended[0])
    await refused(TermEnded, backend.keep_lease("c", "a", ended[0]), "a renewal of an expired lease")
    ended.append(await _acquire(backend))
    await backend.release_lease("c", "a", ended[1])
    await refused(TermEnded, backend.keep_lease("c", "a", ended[1]), "a renewal of a released lease")
    must(await _held(backend) == [], "a renewal acquired a lease")
    term = await _acquire(backend, holder="b")
    here = backend.position
    for late in ended:
        await backend.release_lease("c", "a", late)
    for wrong in (("b", term + 1), ("a", term)):
        await backend.release_lease("c", *wrong)
    must(backend.position == here, "a release of an ended term made a revision")
    must(await _held(backend) == [("c", "b", term)], "a late release ended another holder's lease")


async def leases_are_listed_by_prefix(backend: Backend) -> None:
    """list_leases() returns the held leases with a prefix in order of name, at the store's position."""
    for name in ("c#2", "c", "members/d/x", "c#10", "d"):
        await _acquire(backend, name, f"holder of {name}")
    must([name for name, *_ in await _held(backend)] == ["c", "c#10", "c#2", "d", "members/d/x"], "leases are missing")
    must([name for name, *_ in await _held(backend, "c#")] == ["c#10", "c#2"], "a prefix was ignored")
    must(await _held(backend, "members/e/") == [], "a prefix that matches nothing found something")
    held, position = await backend.list_leases("members/")
    must(position == backend.position, "list_leases() did not return the store's position")
    must([each.lease.holder for each in held] == ["holder of members/d/x"], "a listed lease has another holder")
    must(0 < held[0].remaining <= LONG, "a listed lease has no remaining time")


async def the_end_of_a_lease_wakes_waiting_tasks(backend: Backend) -> None:
    """A task that waits for the end of a term wakes when the lease is released, expires or is held in another term."""
    ended: list[int] = []

    async def wait(term: int) -> None:
        await backend.wait_lease_ended("c", term)
        ended.append(term)

    first = await _acquire(backend)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, first)
        await _acquire(backend, "other")
        must(ended == [], "the end of a held lease was reported")
        await backend.release_lease("c", "a", first)
    second = await _acquire(backend, ttl=SHORT)
    await wait(second)
    third = await _acquire(backend)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, third)
        fourth = await _acquire(backend)
    await wait(second)
    must(
        ended == [first, second, third, second],
        f"of the terms up to {fourth}, the ends of {ended} were reported",
    )
