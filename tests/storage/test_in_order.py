"""Long lists are sorted a part at a time, in place."""

import random
from itertools import pairwise

import trio

from headway.base import in_order
from headway.resource import pb

LONG = 7_000
AT_ONCE = 2_000


def key(resource: pb.Resource) -> str:
    return resource.version


def numbered(order: list[int]) -> list[pb.Resource]:
    return [pb.Resource(version=f"{number:05}") for number in order]


async def test_list_in_order_stays_the_same_list() -> None:
    for length in (0, 1, LONG):
        resources = numbered([*range(length)])
        before = list(resources)
        assert await in_order(resources, key) is resources
        assert [id(each) for each in resources] == [id(each) for each in before]


async def test_any_list_is_sorted_and_those_with_equal_keys_keep_their_order() -> None:
    chance = random.Random(3)
    for spread in (50, 3_000, LONG):
        order = [number + chance.randrange(spread) for number in range(LONG)]
        resources = numbered(order)
        wanted = sorted(resources, key=key)
        assert [id(each) for each in await in_order(resources, key)] == [id(each) for each in wanted]


async def test_list_that_must_be_merged_is_emptied_a_part_at_a_time() -> None:
    """Python frees a list in one step, which takes 30 ms for a million resources."""
    resources = numbered([*range(LONG // 2, LONG), *range(LONG // 2)])
    sizes = [LONG]

    async def look() -> None:
        while True:
            sizes.append(len(resources))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        ordered = await in_order(resources, key)
        assert resources == []
        nursery.cancel_scope.cancel()
    assert ordered == numbered([*range(LONG)])
    # In each turn of the loop the list shrinks once, before or after the look at it.
    assert max(before - after for before, after in pairwise([*sizes, 0])) <= 2 * AT_ONCE
