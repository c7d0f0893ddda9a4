"""What an answer leaves out for a caller who may observe one resource, and neither others nor leases."""

from __future__ import annotations

import pytest

from headway.resource import ResourceId
from headway.why import ControllerWhy, PastReconcile, Ref, Touched, Why
from headway.why._service import redacted
from tests.why.test_workers import CORE

NOW = 1_700_000_000.0
TEAM = Ref.of(CORE.type, CORE.key)
PAYROLL = Ref("staff.v1.Account", "default", "default", "payroll")
ACCOUNTS = Ref("staff.v1.Account")


class May:
    """The permissions of a caller who may observe some resources."""

    def __init__(self, *observes: Ref) -> None:
        self._observes = observes

    def may_observe(self, id: ResourceId) -> bool:
        return Ref.of(id.type, id.key) in self._observes


def answer(*reads: Touched, writes: tuple[Touched, ...] = ()) -> Why:
    ran = PastReconcile(NOW, "done", attempt=1, reads=reads, writes=writes)
    return Why(NOW, TEAM, controllers=(ControllerWhy("staff/teams", "web-1", "manages", "idle", reconciles=(ran,)),))


def test_resource_that_the_caller_may_not_observe_has_no_version() -> None:
    """Neither what was read of it nor what was written."""
    why = answer(Touched("get", PAYROLL, 7), Touched("get", TEAM, 8), writes=(Touched("written", PAYROLL, 9),))
    [ran] = redacted(why, May(TEAM), ()).controllers[0].reconciles  # type: ignore[arg-type]  # what is asked of them
    assert ran.reads == (Touched("get", ACCOUNTS), Touched("get", TEAM, 8))
    assert ran.writes == (Touched("written", ACCOUNTS),)
    told = redacted(why, May(TEAM), ()).sentences()[-1]  # type: ignore[arg-type]  # see above
    assert told.endswith("Read: Account, Team core at version 8. Wrote: Account written.")
    whole = redacted(why, May(TEAM, PAYROLL), ())  # type: ignore[arg-type]  # see above
    assert whole == why


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
