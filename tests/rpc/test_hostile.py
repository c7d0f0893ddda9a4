"""The server survives arbitrary bytes, leaks nothing, and serves a well-behaved client at the same time."""

from __future__ import annotations

import random

import pytest
from hyperframe.frame import SettingsFrame

from tests.rpc.hostile_bytes import PREFACE, WRONG, mutated, noise
from tests.rpc.hostile_caller import shoot
from tests.rpc.hostile_kit import attacked, named, recorded
from tests.rpc.hostile_messages import shots

OPENING = PREFACE + SettingsFrame(0).serialize()


@pytest.mark.parametrize("count", [20, pytest.param(120, marks=pytest.mark.wide)])
async def test_server_survives_random_and_mutated_bytes(count: int) -> None:
    """Many streams: noise, and a real client's bytes with mutations."""
    chance = random.Random(20)
    async with attacked() as target:
        honest = await recorded(target)
        await target.throw_all("noise", noise(chance, count), seed=0)
        await target.throw_all("mutated", mutated(honest, chance, 4 * count), seed=0)
        await target.unharmed()
        assert target.inputs == {"noise": count, "mutated": 4 * count}


@pytest.mark.wide
@pytest.mark.parametrize("front", ["access", "tls", "unix", "sqlite"])
async def test_every_front_survives_all_kinds_of_hostile_input(front: str) -> None:
    """A sample of all: noise, mutated streams, each invalid frame, and messages to every method."""
    chance = random.Random(21)
    async with attacked(front) as target:
        honest = await recorded(target)
        await target.throw_all("noise", noise(chance, 30), seed=1)
        await target.throw_all("mutated", mutated(honest, chance, 120), seed=1)
        await target.throw_all("wrong frames", (OPENING + wrong() for wrong in WRONG.values()), seed=1)
        answers = await shoot(target, "messages", shots(chance, 100))
        assert all(answer.over for answer in answers)
        assert target.inputs == {"noise": 30, "mutated": 120, "wrong frames": len(WRONG), "messages": 100}


async def test_server_survives_each_invalid_frame() -> None:
    """Each frame is sent alone to one server, and leaves it unharmed for the next. A failure names the frame."""
    async with attacked() as target:
        for kind, wrong in WRONG.items():
            with named(kind):
                for abrupt in (False, True):
                    await target.throw(kind, OPENING + wrong(), abrupt=abrupt)
                await target.unharmed()
        assert target.inputs == dict.fromkeys(WRONG, 2)
