"""Any request in valid HTTP/2 is answered, or refused with a short message, and leaves nothing behind."""

from __future__ import annotations

import random

import pytest
from grpclib.const import Status
from h2.errors import ErrorCodes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.rpc import framed
from tests.rpc.hostile_caller import Shot, calling, shoot
from tests.rpc.hostile_kit import attacked, named
from tests.rpc.hostile_messages import METHODS, NAMES, WRITE, WRONG_REQUESTS, bodies, request_named, shots


async def test_each_invalid_request_is_refused_with_its_own_status() -> None:
    """The message is short, other calls on the connection are answered, and the server is unharmed for the next."""
    async with attacked() as target:
        for kind, wrong in WRONG_REQUESTS.items():
            with named(kind):
                one = Shot(wrong.headers, wrong.body)
                answer, after = await shoot(target, kind, [one, Shot(calling(METHODS[0]), framed(b""))])
                if isinstance(wrong.status, Status):
                    assert answer.status == wrong.status.value, answer
                elif isinstance(wrong.status, ErrorCodes):
                    assert (answer.reset, answer.headers) == (wrong.status, {}), answer
                else:
                    assert answer.headers[":status"] == str(wrong.status), answer
                assert after.status == Status.INVALID_ARGUMENT.value
                await target.unharmed()
        assert target.inputs == dict.fromkeys(WRONG_REQUESTS, 2)


async def test_each_absurd_name_is_refused_briefly() -> None:
    """The message is short however long the name is."""
    async with attacked() as target:
        for number, name in enumerate(NAMES):
            with named(f"name {number}"):
                (answer,) = await shoot(target, "name", [Shot(calling(WRITE), framed(request_named(name)))])
                assert answer.status == Status.INVALID_ARGUMENT.value
                await target.unharmed()
        assert target.inputs == {"name": len(NAMES)}


@settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=5,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(st.tuples(st.sampled_from(METHODS), bodies()), min_size=5, max_size=30))
async def test_every_method_answers_any_bytes_with_a_status(asked: list[tuple[str, bytes]]) -> None:
    """No handler raises anything but a GRPCError, whatever its message."""
    async with attacked() as target:
        answers = await shoot(target, "bytes", [Shot(calling(path), framed(body)) for path, body in asked])
        assert all(answer.over for answer in answers)


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.wide)])
async def test_server_survives_many_broken_messages(count: int) -> None:
    """Every method gets some, a few with a broken prefix. Each call is answered, and its connection stays open."""
    chance = random.Random(7)
    async with attacked() as target:
        for _ in range(count // 100):
            answers = await shoot(target, "messages", shots(chance, 100))
            assert all(answer.over for answer in answers)
            await target.unharmed()
        assert target.inputs["messages"] == count
