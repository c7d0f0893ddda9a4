"""Whatever bytes arrive, the server lives, leaks nothing, and a well-behaved client beside them notices nothing."""

from __future__ import annotations

import random

import pytest
from hyperframe.frame import SettingsFrame

from tests.rpc.hostile_bytes import PREFACE, WRONG, mutated, noise
from tests.rpc.hostile_kit import attacked, recorded

OPENING = PREFACE + SettingsFrame(0).serialize()


async def test_random_and_mutated_bytes_disturb_nobody() -> None:
    """Fifteen hundred streams, of noise and of a real client's bytes with mutations."""
    chance = random.Random(20)
    async with attacked() as target:
        honest = await recorded(target)
        for batch in range(5):
            await target.throw_all("noise", noise(chance, 60), seed=batch)
            await target.throw_all("mutated", mutated(honest, chance, 240), seed=batch)
            await target.unharmed()
        assert target.inputs == {"noise": 300, "mutated": 1200}


@pytest.mark.parametrize("kind", WRONG)
async def test_a_wrong_frame_disturbs_nobody(kind: str) -> None:
    """Each alone, so that what it does is known by its name."""
    async with attacked() as target:
        for abrupt in (False, True):
            await target.throw(kind, OPENING + WRONG[kind](), abrupt=abrupt)
        await target.unharmed()
