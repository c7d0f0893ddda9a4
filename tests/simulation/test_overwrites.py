"""Changes that a controller destroys without having read them, although it would have kept them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

import headway
from headway import field
from headway.testing import simulation
from headway.testing.simulation.oracles import overwrites


@headway.message(name="people.Profile")
class Profile:
    email: str = field(1)
    phone: str = field(2)
    verified: bool = field(3)


class Registry:
    """The world outside, which takes three seconds to check an address."""

    def state(self) -> None:
        """Return no state: nothing is kept."""

    async def check(self, email: str) -> bool:
        await trio.sleep(3)
        return "@" in email


Make = Callable[[simulation.Process], headway.App]


def program(how: str) -> Make:
    """Let one controller verify a profile slowly, while another one gives it a phone."""

    def make(process: simulation.Process) -> headway.App:
        app = headway.App("people")
        profile = app.type("people", "v1", "Profile", Profile)

        @app.controller(manages=profile)
        async def verifier(rt: headway.Runtime, request: headway.Request[Profile]) -> None:
            found = rt.resource(request)
            if found is None or found.data.verified:
                return
            verified = await process.outside.check(found.data.email)
            if how == "blind":
                data = Profile(email=found.data.email, phone=found.data.phone, verified=verified)
                await rt.client.apply(profile.new(found.name, data))
            elif how == "owner":
                data = Profile(email=found.data.email, phone="000", verified=verified)
                await rt.client.apply(profile.new(found.name, data))
            else:
                found.data.verified = verified
                await rt.client.write(found)

        @app.controller(manages=profile)
        async def phones(rt: headway.Runtime, request: headway.Request[Profile]) -> None:
            found = rt.resource(request)
            if found is None or rt.controller in found.status:
                return
            if not found.data.phone:
                # By then the verifier has read the profile, whichever of the two was first.
                await trio.sleep(1)
                found.data.phone = "555"
                found = await rt.client.write(found)
            async with rt.conditions(found) as conditions:
                conditions.set("Given", True)

        return app

    return make


async def one_profile(world: simulation.World) -> None:
    await world.client.apply(world.type("Profile").new("ada", Profile(email="ada@example.org")))
    await world.wait_idle()


def test_change_destroyed_in_every_run_is_found_with_both_sides() -> None:
    """Every run ends the same, so that a comparison of the runs shows nothing."""
    with pytest.raises(simulation.Refuted) as caught:
        simulation.explore(program("blind"), one_profile, outside=Registry, seconds=0)
    finding = caught.value.findings[0]
    assert str(finding) == (
        "overwritten: verifier has destroyed a change of Profile ada that it had not read: phones changed phone to "
        "'555' at 9, and verifier wrote '' at 11; the change is kept if verifier reads it first"
    )
    marked = [line for line in str(caught.value).splitlines() if line.endswith("<-- overwritten")]
    assert [line.split(" by ")[-1] for line in marked if "store at" in line] == [
        "phones  <-- overwritten",
        "verifier  <-- overwritten",
    ]


@pytest.mark.wide
@pytest.mark.parametrize("how", ["versioned", "owner"])
def test_controller_that_keeps_or_owns_the_field_is_not_accused(how: str) -> None:
    simulation.explore(program(how), one_profile, outside=Registry, seconds=0)


def test_owner_of_a_field_is_known_only_by_another_run() -> None:
    """The trace of the owner looks the same as that of a controller that overwrites blindly."""
    result = simulation.run(
        simulation.Setting(app=program("owner"), scenario=one_profile, outside=Registry), simulation.Plan()
    )
    assert [(each.path, each.value, each.end) for each in overwrites(result)] == [("phone", "'555'", "'000'")]


def test_newer_value_at_the_end_is_no_loss() -> None:
    async def changed_again(world: simulation.World) -> None:
        await one_profile(world)
        found = await world.client.read(world.type("Profile"), "ada")
        found.data.phone = "777"
        await world.client.write(found)
        await world.wait_idle()

    result = simulation.run(
        simulation.Setting(app=program("blind"), scenario=changed_again, outside=Registry), simulation.Plan()
    )
    assert list(overwrites(result)) == []
