"""The attacks of `test_hostile`, many more of them, for a configurable time."""

from __future__ import annotations

import random

import pytest
import trio

from tests.rpc.hostile_bytes import mutated, noise
from tests.rpc.hostile_caller import shoot
from tests.rpc.hostile_kit import attacked, recorded
from tests.rpc.hostile_messages import shots

_SECONDS = 600.0


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("front", "inputs"), [("tcp", 50_000), ("tls", 6000), ("unix", 6000), ("access", 6000), ("sqlite", 6000)]
)
async def test_server_survives_tens_of_thousands_of_hostile_inputs(front: str, inputs: int) -> None:
    """Noise, mutated streams and broken messages alternate against one server."""
    chance = random.Random(1)
    async with attacked(front) as target:
        honest = await recorded(target)
        with trio.fail_after(_SECONDS):
            while target.inputs.total() < inputs:
                await target.throw_all("noise", noise(chance, 100), seed=1)
                await target.throw_all("mutated", mutated(honest, chance, 400), seed=1)
                for _ in range(10):
                    answers = await shoot(target, "messages", shots(chance, 100))
                    assert all(answer.over for answer in answers)
                await target.unharmed()
        print(front, dict(target.inputs))
