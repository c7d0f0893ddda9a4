"""Past reconciles: failures alike are one, the last success is kept, and each read has the version that it found."""

from __future__ import annotations

import pytest
import trio

import headway
from headway.cache import READING, VersionedReads, _reading
from headway.cache._reading import VERSIONED
from headway.journal import Ran
from headway.resource import TypeName
from headway.run import OwnWrite
from headway.why import Cause, PastReconcile, reconcile_texts
from headway.why.answers import RECONCILES, past_reconciles, reconcile_sentences
from tests.cli.broken import write_that_conflicts
from tests.helpers.why_programs import PATIENCE, Account, Parts, Team, part, told

TEAM = TypeName("staff", "v1", "Team")
KEY = ("default", "default", "core")


def failed(number: int, error: str = "ValueError: no", attempt: int | None = None, version: int = 0) -> Ran:
    reads = ((TEAM, (*KEY, version)),)
    return Ran(
        number, KEY, "failed", 0.001, 0.1, number if attempt is None else attempt, (), reads, (), error, "frames"
    )


def past(*oldest_first: Ran) -> list[PastReconcile]:
    return past_reconciles(reversed(oldest_first), lambda at: at + 1000, lambda _: Cause())


def test_failures_alike_in_a_row_are_one() -> None:
    """With the first of them and the last, whatever versions they read. Another error, or a success, stands between."""
    done = Ran(1, KEY, "done", 0.001, 0.1, 1, ())
    alike = [failed(number, version=number) for number in range(2, 12)]
    other = failed(12, "KeyError: 1")
    found = past(done, *alike, other, failed(13), failed(14))
    assert [(each.outcome, each.alike, each.first_attempt, each.attempt) for each in found] == [
        ("failed", 2, 13, 14),
        ("failed", 1, 12, 12),
        ("failed", 10, 2, 11),
        ("done", 1, 1, 1),
    ]
    assert (found[2].first_at, found[2].at, found[2].reads[0].revision) == (1002, 1011, 11)
    # Successes never merge, as each is for other reasons.
    assert len(past(done, done)) == 2


def wrote(*names: str, number: int, what: str = "written", status_key: str = "") -> Ran:
    writes = tuple(OwnWrite(TEAM, ("", "", name), 10 * number, what, KEY, status_key) for name in names)
    return failed(number)._replace(writes=writes)


def test_failures_that_wrote_something_else_are_not_one() -> None:
    """Only the writes of the last one are shown. The revision of a write is always another."""
    found = past(
        wrote("ada", number=1),
        wrote(number=2),
        wrote("ada", "grace", number=3),
        wrote("ada", "grace", number=4),
        wrote("ada", what="deleted", number=5),
        wrote("ada", what="status", status_key="a", number=6),
        wrote("ada", what="status", status_key="b", number=7),
    )
    assert [(each.first_attempt, each.attempt, len(each.writes)) for each in found] == [
        (7, 7, 1),
        (6, 6, 1),
        (5, 5, 1),
        (3, 4, 2),
        (2, 2, 0),
        (1, 1, 1),
    ]
    assert [each.revision for each in found[3].writes] == [40, 40]
    assert [line.rpartition("Wrote: ")[2] for line in reconcile_sentences(found[3:5], 2000)] == [
        "Team ada written at 40, Team grace written at 40.",
        "nothing.",
    ]


def test_last_success_is_told_after_the_newest_reconciles_however_many_failures_follow_it() -> None:
    """With the number of the failures between them, which is exact only while the answer has them all."""
    done = Ran(1, KEY, "done", 0.001, 0.1, 1, ())

    def told_after(*failures: Ran) -> list[str]:
        found = list(reconcile_sentences(past(done, *failures), 2000))
        return [each.partition(", attempt")[0] for each in found[5:]]

    last = "Reconcile at 00:16:41 (17 min ago)"
    varied = [failed(number, f"ValueError: {number}") for number in range(2, 90)]
    assert told_after(*varied) == ["… at least 5 more failures before that.", last]
    assert told_after(*varied[:6]) == ["… 1 more failure before that.", last]
    alike = [failed(number, "ValueError: alike") for number in range(90, 94)]
    assert told_after(*alike, *varied[:6]) == ["… 5 more failures before that.", last]
    assert told_after(*varied[:5]) == [last]
    # One that is among the newest is not told again, and without one nothing follows.
    assert told_after(*varied[:4]) == []
    assert len(list(reconcile_sentences(past(*varied), 2000))) == 5


def test_last_success_is_kept_however_many_failures_follow() -> None:
    """The list is bounded, and the success comes after it."""
    first, last = (Ran(number, KEY, "done", 0.001, 0.1, 1, ()) for number in (1, 2))
    varied = [failed(number, f"ValueError: {number}") for number in range(3, 90)]
    found = past(first, last, *varied)
    assert len(found) == RECONCILES + 1
    assert [each.error for each in found[:2]] == ["ValueError: 89", "ValueError: 88"]
    assert (found[-1].outcome, found[-1].at) == ("done", 1002)
    assert len(past(*varied)) == RECONCILES
    assert len(past(*[replace_outcome(each) for each in varied])) == RECONCILES


def replace_outcome(ran: Ran) -> Ran:
    return ran._replace(outcome="done", error="")


async def test_stale_copy_is_told_from_a_lost_race() -> None:
    """Each attempt read the version that the store names, and still writes an older one."""
    app = write_that_conflicts()
    team = next(each for each in app.registry if each.name.kind == "Team")
    async with headway.open_engine("memory:", app, report=headway.events.ignore) as engine:
        core = await engine.client.apply(team.new("core", Team()))
        await engine.wait_idle()
        newer = await engine.client.apply(team.new("core", Team(lead="grace")))
        why = await told(engine, core.id, "waiting")
        newest, first = part(why).reconciles
        assert (
            newest.error
            == f"Conflict: Team core is stored at version {newer.version}, not {core.version}; read it again"
        )
        assert reconcile_texts(newest)[1] == f"Team core at version {newer.version}"
        assert reconcile_texts(first)[1] == f"Team core at version {core.version}"


async def test_read_of_a_view_has_the_version_of_the_view() -> None:
    """A view does not change, and the answer has the version that it showed."""
    parts = Parts()
    opened, newest = trio.Event(), list[int]()

    async def read(rt: headway.Runtime, request: headway.Request) -> None:
        async with rt.cache.view(parts.team, parts.account) as view:
            opened.set()
            with trio.fail_after(PATIENCE):
                while not newest or rt.cache.revision(parts.team) < newest[0]:  # noqa: ASYNC110  # it has no event
                    await trio.sleep(0.01)
            view.get(parts.account, "ada")
            view.get(parts.team, request.id)
            # Each with an error of its own, because equal errors are shown as one.
            raise ValueError(request.attempt)

    parts.reconcile = read
    async with headway.open_engine("memory:", parts.app, report=headway.events.ignore) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        await opened.wait()
        await engine.client.apply(parts.account.new("ada", Account(team="docs")))
        newest.append(int((await engine.client.apply(parts.team.new("core", Team(lead="ada")))).version))
        why = await told(engine, core.id, "waiting")
        # The account is younger than the view, so it was absent there.
        first = part(why).reconciles[-1]
        assert reconcile_texts(first)[1] == f"Account ada, Team core at version {core.version}"


def test_versions_are_recorded_for_a_number_of_reconciles() -> None:
    """A worker without failures goes back to the list without versions. A failure begins anew."""
    expired: list[int] = []
    reads = VersionedReads(lambda _, __: None, lambda: expired.append(1))
    for _ in range(VERSIONED - 1):
        reads.clear()
    reads.renew()
    for _ in range(VERSIONED):
        reads.clear()
    assert expired == []
    reads.clear()
    assert expired == [1]


async def test_worker_without_failures_records_no_versions_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads are cheap then. After a failure the versions are there again."""
    monkeypatch.setattr(_reading, "VERSIONED", 3)
    parts = Parts()
    fails, versioned = [False], list[bool]()

    async def read(rt: headway.Runtime, request: headway.Request) -> None:
        rt.resource(request)
        versioned.append(isinstance(READING.get(), VersionedReads))
        if fails[0]:
            fails[0] = False
            raise ValueError("no")

    parts.reconcile = read
    async with headway.open_engine("memory:", parts.app, report=headway.events.ignore) as engine:
        core = await engine.client.apply(parts.team.new("core", Team()))
        await engine.wait_idle()
        for number in range(6):
            core = await engine.client.apply(parts.team.new("core", Team(lead=str(number))))
            await engine.wait_idle()
        assert versioned[:3] == [True] * 3
        assert versioned[-1] is False
        assert [each.revision for each in part(await engine.why(core.id)).reconciles[0].reads] == [0]
        fails[0] = True
        await engine.client.apply(parts.team.new("core", Team(lead="ada")))
        await told(engine, core.id, "waiting")
        assert part(await engine.why(core.id)).reconciles[0].error == "ValueError: no"
        docs = await engine.client.apply(parts.team.new("docs", Team()))
        why = await told(engine, docs.id, "idle", also=lambda each: each.reconciles)
        assert [each.revision for each in part(why).reconciles[0].reads] == [int(docs.version)]
        fails[0] = True
        web = await engine.client.apply(parts.team.new("web", Team()))
        await told(engine, web.id, "waiting")
        count = len(versioned)
        for number in range(3):
            await engine.client.apply(parts.team.new("docs", Team(lead=str(number))))
            while len(versioned) <= count + number:  # noqa: ASYNC110  # it has no event
                await trio.sleep(0.001)
        assert versioned[-3:] == [True] * 3
