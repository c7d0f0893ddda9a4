"""Checks of leases: terms, who holds them and for how long, and what an ended term can still do (promises 9, 10)."""

from __future__ import annotations

from itertools import pairwise

import trio

from headway.storage import Acquired, Backend, Fence, FenceLowered, LeaseEnded
from headway.testing._conformance_tools import must, names, put, reading, refused, thing

LONG = 600.0
"""Seconds that no check takes."""

SHORT = 0.05
"""Seconds that a check can wait for."""


async def _take(backend: Backend, name: str = "c", holder: str = "a", ttl: float = LONG, attempt: str = "") -> int:
    """The term of a lease that must be free for its taker."""
    acquired = await backend.acquire_lease(name, holder, ttl, attempt)
    must(acquired.acquired, f"{name} was not given to {holder}")
    return acquired.held.lease.term


async def _held(backend: Backend, prefix: str = "") -> list[tuple[str, str, int]]:
    held, _ = await backend.list_leases(prefix)
    return [(each.lease.name, each.lease.holder, each.lease.term) for each in held]


async def a_lease_is_taken_by_a_commit(backend: Backend) -> None:
    """At a revision of its own, of which every watch is told; its holder, its ttl and its fence are as they should."""
    reader = await reading(backend)
    before = await reader.until_snapshot()
    acquired = await backend.acquire_lease("c#m", "a", LONG)
    held = acquired.held
    must(acquired.acquired, "a free lease was not given")
    must((held.lease.name, held.lease.holder, held.lease.ttl) == ("c#m", "a", LONG), "a lease is not the one asked for")
    must(held.lease.term >= 1, "a term is not above 0")
    must(LONG - 60 < held.remaining <= LONG, "a new lease has another time left than its ttl")
    must(acquired.position.revision > before.revision, "taking a lease made no revision")
    must(backend.position == acquired.position, "the store does not stand at the taken lease")
    await reader.until(acquired.position.revision)
    must(reader.changes == [], "a lease was said to be a resource's change")


async def terms_only_grow(backend: Backend) -> None:
    """Whatever ends a term, its holder's next request included, the next term is higher; as raises of the fence are."""
    terms = [(await backend.raise_fence("c", "", 0, 0)).fence.term, await _take(backend)]
    terms.append(await _take(backend))
    await backend.release_lease("c", "a", terms[-1])
    terms.append(await _take(backend, holder="b", ttl=SHORT))
    await backend.wait_lease_ended("c", terms[-1])
    terms.append(await _take(backend, holder="b"))
    await backend.release_lease("c", "b", terms[-1])
    terms.append((await backend.raise_fence("c", "", 0, 0)).fence.term)
    terms.append(await _take(backend))
    for earlier, later in pairwise(terms):
        must(earlier < later, f"term {later} came after term {earlier}")


async def a_lease_that_is_held_is_given_to_nobody_else(backend: Backend) -> None:
    """Another is told who holds it, in which term and for how long, and no revision is made; other names are free."""
    term = await _take(backend)
    here = backend.position
    for attempt in ("", "attempt"):
        other = await backend.acquire_lease("c", "b", LONG, attempt)
        must(not other.acquired, "a lease was given to a second holder")
        must((other.held.lease.holder, other.held.lease.term) == ("a", term), "another than the holder was named")
        must(0 < other.held.remaining <= LONG, "a held lease has no time left")
    must(backend.position == here, "a lease that was not given made a revision")
    for name in ("c#m", "other"):
        must(await _take(backend, name, "b") >= 1, "another lease was not given")


async def a_repeated_request_has_a_term_of_its_own(backend: Backend) -> None:
    """No term is given out twice, so a late release or renewal of a former term neither ends nor keeps the lease."""
    first = await _take(backend, attempt="one")
    second = await _take(backend, attempt="one")
    must(second > first, f"a repeated request was given term {second} after term {first}")
    here = backend.position
    await backend.release_lease("c", "a", first)
    must(await _held(backend) == [("c", "a", second)], "a late release has ended the term of a later request")
    must(not (await backend.acquire_lease("c", "b", LONG)).acquired, "a late release has freed a lease that is held")
    await refused(LeaseEnded, backend.keep_lease("c", "a", first), "a late renewal")
    must(not (await backend.acquire_lease("c", "b", LONG, "one")).acquired, "another holder's attempt took the lease")
    must(backend.position == here, "late requests made a revision")
    await backend.release_lease("c", "a", second)
    must(await _take(backend, attempt="one") > second, "a term that had ended was given out again")


async def a_late_request_does_not_end_a_term_in_use(backend: Backend) -> None:
    """After the first renewal, or the first raise, a repetition of the request is refused, and the term goes on."""
    for attempt in ("kept", "raised"):
        term = await _take(backend, attempt=attempt)
        if attempt == "kept":
            await backend.keep_lease("c", "a", term)
        else:
            await backend.raise_fence("c", "", term, 1)
        here = backend.position
        late = await backend.acquire_lease("c", "a", LONG, attempt)
        must(not late.acquired, f"a late request has taken a lease in use ({attempt})")
        must((late.held.lease.holder, late.held.lease.term) == ("a", term), "another term was named than that in use")
        must(backend.position == here, "a late request made a revision")
        await backend.keep_lease("c", "a", term)
        await put(backend, thing(attempt), fence=Fence("c", "", term, 1))
    for _ in range(2):
        # Its first answer may have been lost: the term is not in use, although the one before was.
        later = await _take(backend, attempt="next")
        must(later > term, "the holder's next attempt has no higher term")
        term = later
    must(await _take(backend) > term, "a request without an attempt has no higher term")


async def one_of_many_gets_it(backend: Backend) -> None:
    """Of those who ask at once one gets the lease, and the others are told of that one."""
    answers: list[Acquired] = []

    async def ask(holder: int) -> None:
        answers.append(await backend.acquire_lease("c", f"holder-{holder}", LONG))

    async with trio.open_nursery() as nursery:
        for holder in range(16):
            nursery.start_soon(ask, holder)
    must(sum(answer.acquired for answer in answers) == 1, "not one of many got a lease that was free")
    told = {(answer.held.lease.holder, answer.held.lease.term) for answer in answers}
    must(len(told) == 1, f"those who asked at once were told of several holders: {told}")


async def _must_be_over(backend: Backend, term: int, how: str) -> None:
    """Hold that nothing which bears this term of "c" is written any more."""
    before = await names(backend)
    for number in (0, 1, 7):
        late = put(backend, thing(f"late-{term}-{number}"), fence=Fence("c", "", term, number))
        await refused(FenceLowered, late, f"a write of a term that {how}")
    await refused(
        FenceLowered, backend.commit([], Fence("c", "", term, 9)), f"a commit of nothing in a term that {how}"
    )
    await refused(FenceLowered, backend.raise_fence("c", "", term, 9), f"a raise in a term that {how}")
    await refused(FenceLowered, backend.record_checkpoint(Fence("c", "", term, 9), 1), f"settling in a term that {how}")
    must(await names(backend) == before, f"a write of a term that {how} was stored")


async def nothing_of_a_term_lands_after_anothers_acquire(backend: Backend) -> None:
    """From that commit on, though its successor has not raised its fence."""
    term = await _take(backend, ttl=SHORT)
    await backend.raise_fence("c", "", term, 1)
    await backend.wait_lease_ended("c", term)
    later = await _take(backend, holder="b")
    await _must_be_over(backend, term, "another's has followed")
    await put(backend, thing("in time"), fence=Fence("c", "", later, 0))


async def nothing_of_a_term_lands_after_its_holder_has_taken_another(backend: Backend) -> None:
    """A holder that begins anew fences its former self off."""
    term = await _take(backend)
    await backend.raise_fence("c", "", term, 1)
    await put(backend, thing("in time"), fence=Fence("c", "", term, 1))
    await _take(backend)
    await _must_be_over(backend, term, "its holder has left for another")


async def nothing_of_a_term_lands_after_its_release(backend: Backend) -> None:
    """Nobody need have taken the lease since."""
    term = await _take(backend)
    await backend.raise_fence("c", "", term, 1)
    before = backend.position
    await backend.release_lease("c", "a", term)
    must(backend.position.revision > before.revision, "a release made no revision")
    must(await _held(backend) == [], "a released lease is listed")
    await _must_be_over(backend, term, "was released")


async def nothing_of_a_term_lands_after_it_has_run_out(backend: Backend) -> None:
    """Nobody need have taken the lease since; and what another lease governs goes on."""
    other = await _take(backend, "d", "b")
    term = await _take(backend, ttl=SHORT)
    await backend.raise_fence("c", "", term, 1)
    await backend.wait_lease_ended("c", term)
    must(await _held(backend) == [("d", "b", other)], "not those leases are listed that are held")
    await _must_be_over(backend, term, "has run out")
    await put(backend, thing("in time"), fence=Fence("d", "", other, 0))


async def a_raise_is_in_the_term_of_its_lease(backend: Backend) -> None:
    """Any other term, 0 included, is FenceLowered while the lease is held; the fences of others don't mind."""
    term = await _take(backend)
    for wrong in (0, term - 1, term + 1, term + 100):
        await refused(FenceLowered, backend.raise_fence("c", "", wrong, 5), f"a raise for term {wrong} beside {term}")
    await refused(FenceLowered, backend.raise_fence("c", "", term, 0), "raising a new lease's fence to where it is")
    for number in (1, 2, 5):
        raised = await backend.raise_fence("c", "", term, number)
        must(raised.fence == Fence("c", "", term, number), "a fence was stored otherwise than given")
    must(raised.checkpoint > 0, "a lease's fence has nothing settled")
    must((await backend.raise_fence("c", "m", 0, 0)).fence.term == 1, "a lease has raised another member's fence")
    await backend.release_lease("c", "a", term)
    must((await backend.raise_fence("c", "", 0, 0)).fence.term > term, "a run without a lease has no higher term")


async def a_members_fence_is_governed_by_its_own_lease(backend: Backend) -> None:
    """The lease "c#m" is that of the fence of c and m, as "c" is that of c without a member."""
    whole, part = await _take(backend), await _take(backend, "c#m", "b")
    await refused(FenceLowered, backend.raise_fence("c", "m", 0, 0), "a raise beside a member's lease")
    await backend.raise_fence("c", "m", part, 1)
    await backend.release_lease("c", "a", whole)
    await put(backend, thing("in time"), fence=Fence("c", "m", part, 1))
    await backend.release_lease("c#m", "b", part)
    await refused(FenceLowered, put(backend, thing("late"), fence=Fence("c", "m", part, 9)), "a member's late write")


async def a_lease_is_kept_alive_by_its_holder_alone(backend: Backend) -> None:
    """In its term, without a commit; for anybody and anything else LeaseEnded."""
    term = await _take(backend)
    here = backend.position
    await trio.sleep(0.01)
    before, _ = await backend.list_leases()
    await backend.keep_lease("c", "a", term)
    after, _ = await backend.list_leases()
    must(before[0].remaining < LONG, "the time of a lease does not pass")
    must(after[0].remaining > before[0].remaining, "a lease that is kept alive has no more time than before")
    for holder, wrong in (("b", term), ("a", term + 1), ("a", term - 1)):
        await refused(LeaseEnded, backend.keep_lease("c", holder, wrong), "keeping what is another's")
    must(await _held(backend) == [("c", "a", term)], "a lease is not held that was kept alive")
    must(backend.position == here, "keeping a lease alive made a revision")
    must(await _take(backend) > term, "the next term is not higher")
    await refused(LeaseEnded, backend.keep_lease("c", "a", term), "keeping a former term")


async def a_lease_that_has_ended_is_not_kept_alive(backend: Backend) -> None:
    """Neither run out nor released is it taken again by keeping it; nor is it released for its successor."""
    ended = [await _take(backend, ttl=SHORT)]
    await backend.wait_lease_ended("c", ended[0])
    await refused(LeaseEnded, backend.keep_lease("c", "a", ended[0]), "keeping what has run out")
    ended.append(await _take(backend))
    await backend.release_lease("c", "a", ended[1])
    await refused(LeaseEnded, backend.keep_lease("c", "a", ended[1]), "keeping what was released")
    must(await _held(backend) == [], "a lease was taken by being kept alive")
    term = await _take(backend, holder="b")
    here = backend.position
    for late in ended:
        await backend.release_lease("c", "a", late)
    for wrong in (("b", term + 1), ("a", term)):
        await backend.release_lease("c", *wrong)
    must(backend.position == here, "a release of what had ended made a revision")
    must(await _held(backend) == [("c", "b", term)], "a late release has ended another's lease")


async def leases_are_listed_by_the_beginning_of_their_names(backend: Backend) -> None:
    """In order of name, those that are held; the position is the store's."""
    for name in ("c#2", "c", "members/d/x", "c#10", "d"):
        await _take(backend, name, f"holder of {name}")
    must([name for name, *_ in await _held(backend)] == ["c", "c#10", "c#2", "d", "members/d/x"], "leases are missing")
    must([name for name, *_ in await _held(backend, "c#")] == ["c#10", "c#2"], "a prefix was not heeded")
    must(await _held(backend, "members/e/") == [], "a prefix of nothing has found something")
    held, position = await backend.list_leases("members/")
    must(position == backend.position, "leases were listed at another position than the store's")
    must([each.lease.holder for each in held] == ["holder of members/d/x"], "a listed lease has another holder")
    must(0 < held[0].remaining <= LONG, "a listed lease has no time left")


async def the_end_of_a_lease_is_heard(backend: Backend) -> None:
    """Whoever waits for it is told when it is released or has run out, or is held in another term."""
    heard: list[int] = []

    async def wait(term: int) -> None:
        await backend.wait_lease_ended("c", term)
        heard.append(term)

    first = await _take(backend)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, first)
        await _take(backend, "other")
        must(heard == [], "an end was heard that was not")
        await backend.release_lease("c", "a", first)
    second = await _take(backend, ttl=SHORT)
    await wait(second)
    third = await _take(backend)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, third)
        fourth = await _take(backend)
    await wait(second)
    must(heard == [first, second, third, second], f"of the terms up to {fourth}, the ends of {heard} were heard")


CHECKS = [
    a_lease_is_taken_by_a_commit,
    terms_only_grow,
    a_lease_that_is_held_is_given_to_nobody_else,
    a_repeated_request_has_a_term_of_its_own,
    a_late_request_does_not_end_a_term_in_use,
    one_of_many_gets_it,
    nothing_of_a_term_lands_after_anothers_acquire,
    nothing_of_a_term_lands_after_its_holder_has_taken_another,
    nothing_of_a_term_lands_after_its_release,
    nothing_of_a_term_lands_after_it_has_run_out,
    a_raise_is_in_the_term_of_its_lease,
    a_members_fence_is_governed_by_its_own_lease,
    a_lease_is_kept_alive_by_its_holder_alone,
    a_lease_that_has_ended_is_not_kept_alive,
    leases_are_listed_by_the_beginning_of_their_names,
    the_end_of_a_lease_is_heard,
]
