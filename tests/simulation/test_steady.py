"""Reconciles that write something else than the one before, although nothing has changed in between."""

from __future__ import annotations

import pytest

import headway
from headway import field
from headway.testing import simulation


@headway.message
class Rule:
    source: str = field(1)
    phase: str = field(2)
    failures: int = field(3)


class Firewall:
    def __init__(self) -> None:
        self.rules: dict[str, str] = {}

    async def allow(self, name: str, source: str) -> int:
        self.rules[name] = source
        return len(self.rules)


types = headway.App("firewall")
RULE = types.type("firewall", "v1", "Rule", Rule)


def telling(*, attempt: bool, looks: bool = False) -> simulation.MakeApp:
    def make(process: simulation.Process) -> headway.App:
        app = headway.App("firewall")
        app.registry = types.registry

        @app.controller(manages=RULE)
        async def rules(rt: headway.Runtime, request: headway.Request[Rule]) -> None:
            rule = rt.resource(request)
            if rule is None:
                return
            # A reconcile that has looked at the status is followed by another one when it writes it.
            assert not looks or len(rule.status) < 2
            async with rt.conditions(rule, failure="Ready") as conditions:
                await process.outside.allow(rule.name, rule.data.source)
                conditions.set("Ready", True, f"attempt {request.attempt}" if attempt else "in force")

        return app

    return make


def counting(process: simulation.Process) -> headway.App:
    """A right program with phases, which counts its failures in the store."""
    app = headway.App("firewall")
    app.registry = types.registry

    @app.controller(manages=RULE)
    async def rules(rt: headway.Runtime, request: headway.Request[Rule]) -> None:
        rule = rt.resource(request)
        if rule is None or rule.data.phase == "Ready":
            return
        if rule.data.failures:
            # The failure has been seen, so this is another step of the work.
            rule.data.failures, rule.data.phase = 0, "Retrying"
        elif rule.data.phase in ("", "Retrying"):
            try:
                await process.outside.allow(rule.name, rule.data.source)
                rule.data.phase = "Ready"
            except simulation.OutsideUnreachable:
                rule.data.failures += 1
        await rt.client.write(rule)

    return app


async def scenario(world: simulation.World) -> None:
    await world.client.apply(RULE.new("ssh", Rule(source="10.0.0.0/8")))
    await world.wait_idle()


async def changed(world: simulation.World) -> None:
    await scenario(world)
    await world.client.apply(RULE.new("ssh", Rule(source="192.168.0.0/16")))
    await world.wait_idle()


@pytest.mark.parametrize(
    ("looks", "oracle", "said"),
    [(True, "steady", r"steady: Rule ssh.*attempt 2, and then"), (False, "again", r"again: 1 write after a restart")],
)
def test_number_of_the_attempt_in_a_condition_is_found(looks: bool, oracle: str, said: str) -> None:
    """Looked at, the condition is written twice after a failure, and else once more after a restart."""
    with pytest.raises(simulation.Refuted, match=said) as caught:
        simulation.explore(telling(attempt=True, looks=looks), scenario, outside=Firewall, plan="not_done(1)")
    assert [each.oracle for each in caught.value.findings] == [oracle]


@pytest.mark.parametrize("app", [telling(attempt=False), counting])
def test_conditions_and_phases_that_follow_from_the_store_pass(app: simulation.MakeApp) -> None:
    explored = simulation.explore(app, scenario, outside=Firewall, plan="not_done(1)")
    assert explored.struck
    assert explored.runs
