"""Merges and other writes of one resource at once: each has its effect, and none is refused for another one's write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from headway.base import KeyTurns
from headway.http import RequestLimits, _verbs
from tests.http.kit import CORE, TEAM, Api, Team, serving
from tests.rpc.raw_kit import tcp

CLIENTS = 20


async def test_merges_of_twenty_clients_at_once_all_have_their_effect(tmp_path: Path) -> None:
    """Without turns, one of them succeeds in each round, and most of them are refused in the end.

    A commit of this store takes longer than a read, so that all have read the same version.
    """
    async with serving(store=f"sqlite:{tmp_path}/store.db") as api:
        await api.client.apply(TEAM.new("core"))
        codes: list[int] = []

        async def merge(client: int) -> None:
            for number in range(3):
                changes = {"data": {"labels": {f"label-{client:02}-{number}": "1"}}}
                codes.append((await api.http.patch(CORE, json=changes)).status_code)

        with trio.fail_after(50):
            async with trio.open_nursery() as nursery:
                for client in range(CLIENTS):
                    nursery.start_soon(merge, client)
        assert codes == [200] * (3 * CLIENTS)
        expected = [f"label-{client:02}-{number}" for client in range(CLIENTS) for number in range(3)]
        assert sorted((await api.client.read(TEAM, "core")).data.labels) == expected


Change = Callable[[Api], Awaitable[object]]


@contextmanager
def before_each_commit(api: Api, change: Change, times: int) -> Iterator[list[None]]:
    """Let another writer change the resource between the read and the commit of a request, some times."""
    backend: Any = api.backend
    commit = backend.commit
    changed: list[None] = []

    async def late(*about: Any) -> Any:
        if len(changed) < times:
            changed.append(None)
            backend.commit = commit
            await change(api)
            backend.commit = late
        return await commit(*about)

    backend.commit = late
    try:
        yield changed
    finally:
        backend.commit = commit


async def written(api: Api) -> object:
    # Each differs from the one before, which is not written again otherwise.
    return await api.client.apply(TEAM.new("core", Team(note="theirs"), metadata={"at": str(trio.current_time())}))


async def replaced(api: Api) -> object:
    await api.client.delete(TEAM.id("core"))
    return await api.client.create(TEAM.new("core", Team(note="theirs")))


STATUS = {"observedGeneration": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "conditions": [{"type": "Ready", "state": "STATE_TRUE"}]}


@pytest.mark.parametrize("change", [written, replaced])
@pytest.mark.parametrize("status", [False, True])
async def test_write_of_what_was_read_is_repeated_after_the_change_of_another(change: Change, *, status: bool) -> None:
    """The error would name a version, or a uid, that the client has never sent."""
    async with serving() as api:
        await api.client.apply(TEAM.new("core", Team(note="old")))
        with before_each_commit(api, change, 3) as changed:
            if status:
                answer = await api.http.put(f"{CORE}/status/rollout", json=STATUS)
            else:
                answer = await api.http.patch(CORE, json={"data": {"budget": 7}})
        assert (answer.status_code, len(changed)) == (200, 3), answer.text
        stored = await api.client.read(TEAM, "core")
        assert stored.data == (Team(note="theirs") if status else Team(note="theirs", budget=7))
        assert [*stored.status] == (["rollout"] if status else [])


async def test_merge_of_a_resource_that_is_deleted_meanwhile_finds_none() -> None:
    async with serving() as api:
        await api.client.apply(TEAM.new("core"))
        with before_each_commit(api, lambda api: api.client.delete(TEAM.id("core")), 1):
            answer = await api.http.patch(CORE, json={"data": {"budget": 7}})
        assert (answer.status_code, answer.json()["message"]) == (404, "Team core not found")


@pytest.mark.parametrize("sent", ["version", "uid"])
async def test_merge_into_what_the_client_has_read_is_refused_after_a_change(sent: str) -> None:
    async with serving() as api:
        stored = await api.client.apply(TEAM.new("core"))
        value = stored.version if sent == "version" else stored.id.uid
        change = written if sent == "version" else replaced
        with before_each_commit(api, change, 1):
            answer = await api.http.patch(f"{CORE}?{sent}={value}", json={"data": {"budget": 7}})
        assert (answer.status_code, value in answer.json()["message"]) == (409, True)
        assert (await api.client.read(TEAM, "core")).data == Team(note="theirs")


async def test_merge_that_loses_every_race_is_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, and the same request may be sent again."""
    monkeypatch.setattr(_verbs, "_WAIT", 0.0)
    async with serving() as api:
        await api.client.apply(TEAM.new("core"))
        with before_each_commit(api, written, 1_000):
            answer = await api.http.patch(CORE, json={"data": {"budget": 7}})
        assert (answer.status_code, answer.json()["reason"]) == (503, "NOTHING_WRITTEN")
        assert "Team core was changed by others in each of 8 attempts" in answer.json()["message"]
        assert answer.headers["retry-after"] == "1"


async def test_slow_body_holds_no_turn() -> None:
    """A client that sends half of its body must not keep others from the resource."""
    async with serving() as api:
        await api.client.apply(TEAM.new("core"))
        async with tcp(api.address) as slow:
            await slow.send_all(
                f'PATCH {CORE} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{{"data"'.encode()
            )
            with trio.fail_after(20):
                assert (await api.http.patch(CORE, json={"data": {"budget": 7}})).status_code == 200


async def test_merge_waits_for_its_turn_only_as_long_as_for_an_answer() -> None:
    """Its own write would have been possible: nothing says that it may have happened."""
    async with serving(limits=RequestLimits(answer_timeout=0.3)) as api:
        await api.client.apply(TEAM.new("core"))
        backend: Any = api.backend
        commit = backend.commit
        committing, other = trio.Event(), trio.Event()

        async def held(*about: Any) -> Any:
            committing.set()
            # It cannot be given up, as a store whose disk is slow.
            with trio.CancelScope(shield=True):
                await other.wait()
            return await commit(*about)

        backend.commit = held
        answers: list[Any] = []

        async def merge() -> None:
            answers.append(await api.http.patch(CORE, json={"data": {"budget": 7}}))

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(merge)
                await committing.wait()
                backend.commit = commit
                await merge()
                other.set()
        refused, _ = answers
        assert (refused.status_code, refused.json()["reason"]) == (503, "NOTHING_WRITTEN")
        assert "too many others change Team core" in refused.json()["message"]
        assert (await api.http.patch(CORE, json={"data": {"budget": 8}})).status_code == 200


async def test_turns_come_in_order_and_leave_nothing_behind(autojump_clock: trio.testing.MockClock) -> None:
    turns, order = KeyTurns(), list[int]()

    async def take(number: int) -> None:
        await trio.sleep(number)
        try:
            async with turns.at("key", 25):
                await trio.sleep(10)
                order.append(number)
        except trio.TooSlowError:
            order.append(-number)

    async with trio.open_nursery() as nursery:
        for number in range(1, 5):
            nursery.start_soon(take, number)
        await trio.sleep(1.5)
        async with turns.at("other", 0.1):
            assert len(turns) == 2
    # The first one ends at 11, the second at 21. The third has its turn from 21 on, and the fourth waits until 29.
    assert order == [1, 2, -4, 3]
    assert len(turns) == 0
    assert autojump_clock is not None
