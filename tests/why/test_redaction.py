"""What an answer leaves out for a caller who may observe one resource, and neither others nor leases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from headway.resource import ResourceId
from headway.service import Decision
from headway.why import (
    Cause,
    ControllerWhy,
    LeaseNow,
    PastReconcile,
    Ref,
    Touched,
    TurnedAwayChange,
    UnmappedChange,
    Why,
    redacted,
    ref_of,
    sentences,
)
from tests.why.test_workers import CORE

NOW = 1_700_000_000.0
TEAM = ref_of(CORE.type, CORE.key)
PAYROLL = Ref("staff.v1.Account", "default", "default", "payroll")
ACCOUNTS = Ref("staff.v1.Account")


class May:
    """The permissions of a caller who may observe some resources, and read some leases."""

    def __init__(self, *observes: Ref, leases: tuple[str, ...] = (), events: str = "") -> None:
        self._observes = observes
        self._leases = leases
        self._events = events

    def may_read(self, id: ResourceId, _: object) -> Decision:
        assert str(id.type) == "event.v1.Event"
        allowed = self._events and id.namespace == "default" and id.name.startswith(self._events)
        return Decision.ALLOWED if allowed else Decision.DENIED

    def may_observe(self, id: ResourceId) -> bool:
        return ref_of(id.type, id.key) in self._observes

    def may_read_lease(self, name: str) -> bool:
        return name in self._leases


def answer(*reads: Touched, writes: Sequence[Touched] = ()) -> Why:
    ran = PastReconcile(NOW, "done", attempt=1, reads=list(reads), writes=list(writes))
    return Why(
        NOW,
        TEAM,
        controllers=[ControllerWhy("staff/teams", "web-1", "manages", "idle", reconciles=[ran])],
    )


def test_resource_that_the_caller_may_not_observe_has_no_version() -> None:
    """Neither what was read of it nor what was written."""
    why = answer(Touched("get", PAYROLL, 7), Touched("get", TEAM, 8), writes=(Touched("written", PAYROLL, 9),))
    [ran] = redacted(why, May(TEAM), ()).controllers[0].reconciles  # type: ignore[arg-type]  # what is asked of them
    assert ran.reads == [Touched("get", ACCOUNTS), Touched("get", TEAM, 8)]
    assert ran.writes == [Touched("written", ACCOUNTS)]
    told = sentences(redacted(why, May(TEAM), ()))[-1]  # type: ignore[arg-type]  # see above
    assert told.endswith("Read: Account, Team core at version 8. Wrote: Account written.")
    whole = redacted(why, May(TEAM, PAYROLL), ())  # type: ignore[arg-type]  # see above
    assert whole == why


def test_change_that_the_caller_may_not_observe_has_no_revision_and_no_writer() -> None:
    """Whether it was a reason to reconcile, could not be mapped, or was turned away."""
    cause = Cause("changed", PAYROLL, 9, "owner", "token ada")
    part = ControllerWhy(
        "staff/teams",
        "web-1",
        "manages",
        "queued",
        causes=[cause],
        unmapped=[UnmappedChange(PAYROLL, 9, "owner", "KeyError: 'x'", "Traceback", 1, NOW - 9, NOW)],
        turned_away=[TurnedAwayChange(NOW - 9, PAYROLL, 9, "when")],
        reconciles=[PastReconcile(NOW, "done", causes=[cause])],
    )
    why = Why(NOW, TEAM, controllers=[part])
    seen = redacted(why, May(TEAM), ())  # type: ignore[arg-type]  # what is asked of them
    hidden = Cause("changed", ACCOUNTS, through="owner")
    [shown] = seen.controllers
    assert shown.causes == shown.reconciles[0].causes == [hidden]
    assert shown.unmapped[0].revision == shown.turned_away[0].revision == 0
    told = "\n".join(sentences(seen))
    assert "revision" not in told
    assert "ada" not in told
    assert "Predicate when turned away the change of a Account, at" in told
    whole = redacted(why, May(TEAM, PAYROLL), ())  # type: ignore[arg-type]  # see above
    assert whole == why
    assert "\n".join(sentences(whole)).count("at revision 9") == 4


@pytest.mark.parametrize(
    ("everywhere", "how"),
    [((), "strong read"), (("staff.v1.Team",), "strong read"), (("staff.v1.Account",), "strong read of payroll")],
)
def test_strong_read_names_its_resource_only_to_callers_who_may_observe_all(
    everywhere: tuple[str, ...], how: str
) -> None:
    """Its text names a resource, but not where it is. Other ways to read name no resource."""
    why = answer(Touched("strong read of payroll", ACCOUNTS), Touched("index strong read", ACCOUNTS))
    [ran] = redacted(why, May(TEAM), everywhere).controllers[0].reconciles  # type: ignore[arg-type]  # see above
    assert [each.how for each in ran.reads] == [how, "index strong read"]


def test_lease_is_shown_only_to_callers_who_may_read_it() -> None:
    """Others learn that the controller stands by. The lease of a shard is not that of the controller."""
    lease = LeaseNow("staff/teams", "web-7", NOW - 60, NOW - 10, NOW + 10)
    whole = ControllerWhy("staff/teams", "web-1", "manages", "standby", since=NOW - 90, holder="web-7", lease=lease)
    shard = replace(whole, shard=4, lease=replace(lease, name="staff/teams#3"))
    why = Why(NOW, TEAM, controllers=[whole, shard])
    for leases in ((), ("staff/teams",), ("staff/teams#3",)):
        shown = redacted(why, May(TEAM, leases=leases), ())  # type: ignore[arg-type]  # what is asked of them
        for each, name in zip(shown.controllers, ("staff/teams", "staff/teams#3"), strict=True):
            assert (each.lease is not None) is (each.holder == "web-7") is (name in leases)
        assert any("web-7" in each for each in sentences(shown)) is bool(leases)
    told = sentences(redacted(why, May(TEAM), ()))  # type: ignore[arg-type]  # see above
    assert [each.strip() for each in told if "stand" in each] == [
        "It has been standing by since 22:11:50 (90 s ago): another process holds the lease staff/teams.",
        "It stands by: the resource belongs to shard 3, which another process holds.",
    ]
