"""The same attacks, many more of them, for as long as one has the patience."""

from __future__ import annotations

import random

import pytest
import trio

from tests.rpc.hostile_bytes import mutated, noise
from tests.rpc.hostile_caller import shoot
from tests.rpc.hostile_kit import attacked, recorded
from tests.rpc.hostile_messages import shots

_INPUTS = 50_000
_SECONDS = 600.0


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1])
async def test_fifty_thousand_inputs_disturb_nobody(seed: int) -> None:
    """Noise, mutated streams and broken messages by turns, against one server."""
    chance = random.Random(seed)
    async with attacked() as target:
        honest = await recorded(target)
        with trio.fail_after(_SECONDS):
            while target.inputs.total() < _INPUTS:
                await target.throw_all("noise", noise(chance, 100), seed=seed)
                await target.throw_all("mutated", mutated(honest, chance, 400), seed=seed)
                for _ in range(10):
                    answers = await shoot(target, "messages", shots(chance, 100))
                    assert all(answer.over for answer in answers)
                await target.unharmed()
        print(dict(target.inputs))
