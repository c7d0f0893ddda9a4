"""Commits that are acknowledged while the store compares etcd with its own state are not another history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headway.storage.etcd import _follow, etcd_revision
from headway.storage.etcd._session import Session
from headway.storage.etcd._snapshot import load_mirror, read_standing
from headway.testing.conformance import put, thing
from tests.storage.etcd_kit import Rig, followed, primed, rigged, until


def raced_by_a_commit(rig: Rig, read: Callable[..., Awaitable[Any]], raced: list[int]) -> Callable[..., Awaitable[Any]]:
    """Wrap a read so that a later commit is acknowledged before the answer is returned."""

    async def reading(*arguments: Any, **named: Any) -> Any:
        answer = await read(*arguments, **named)
        raced.append((await put(rig.store, thing(f"raced-{len(raced)}"))).revision)
        return answer

    return reading


async def test_commit_acknowledged_before_the_comparison_is_not_another_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a break, the watch continues with the commit, and the store does not report a rollback."""
    async with rigged() as rig:
        raced: list[int] = []
        monkeypatch.setattr(_follow, "read_standing", raced_by_a_commit(rig, read_standing, raced))
        reader = await primed(rig.store)
        rig.fake.cancel_watches("the member is going")
        await until(lambda: raced)
        await reader.until(raced[0])
        await followed(reader, rig.store)
        assert set(rig.store.counts) == {"watches cancelled"}


async def test_commit_acknowledged_before_a_snapshot_without_it_is_not_another_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store's position is never below a revision that its writer has received."""
    async with rigged() as rig:
        raced: list[int] = []
        await put(rig.store, thing("before"))
        await primed(rig.store)
        stood: list[int] = []
        replace = Session.replace

        def replaced(*arguments: Any, **named: Any) -> None:
            replace(*arguments, **named)
            stood.append(rig.store.position.revision)

        monkeypatch.setattr(Session, "replace", replaced)
        monkeypatch.setattr(_follow, "load_mirror", raced_by_a_commit(rig, load_mirror, raced))
        rig.fake.cancel_watches("compacted", compact_revision=etcd_revision(rig.store.position.revision))
        await until(lambda: stood)
        assert stood[0] >= raced[0]
        await followed(await primed(rig.store), rig.store)
        assert not rig.store.counts["other histories"]
