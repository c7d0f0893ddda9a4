"""Calls that arrive after all users have finished."""

from __future__ import annotations

import pytest

import headway
from headway.testing import simulation
from tests.helpers.corpus.programs import result_of, right
from tests.helpers.corpus.staff import Cloud, Team, come_and_go, members_change


@pytest.mark.parametrize(("spent", "leaks"), [(False, True), (True, False)])
@pytest.mark.wide
def test_call_that_arrives_after_its_cleanup_is_found(spent: bool, leaks: bool) -> None:
    """It is found whatever the scenario waits for, and by no other fault."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("staff")
        team, cloud = app.type("staff", "v1", "Team", Team), process.outside

        @app.controller(manages=team)
        async def disks(rt: headway.Runtime, request: headway.Request[Team]) -> None:
            found, name = rt.resource(request), request.id.name
            if found is None:
                return
            async with rt.finalizer(found) as guarded:
                if guarded.alive:
                    await (cloud.put_for(found.id.uid, name) if spent else cloud.put(name))
                elif guarded.cleaning_up and spent:
                    await cloud.remove_for_good(found.id.uid, name)
                elif guarded.cleaning_up and name in cloud.disks:
                    await cloud.remove(name)

        return app

    def tried(plan: str) -> str:
        try:
            simulation.explore(make, come_and_go, outside=Cloud, plan=plan)
        except simulation.Refuted as refuted:
            return str(refuted.findings[0])
        return ""

    assert [tried(plan) for plan in ("commit_late(2, 0.0)", "commit_late(2, 30.0)")] == ["", ""]
    found = "outside: the outside world is {'core': ''}; without faults: {}"
    assert tried("commit_last(2)") == (found if leaks else "")


def test_write_that_arrives_last_is_rejected_as_resolved() -> None:
    result = result_of(right, "commit_last(1)", scenario=members_change, quiet=None)
    lines = [str(entry) for entry in result.trace.entries]
    over = next(at for at, line in enumerate(lines) if line.startswith("the scenario is over"))
    assert [line for line in lines[over:] if "step 1 arrives late and was rejected" in line]
