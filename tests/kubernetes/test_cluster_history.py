"""Histories of programs on a cluster: which are good, and which break a rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

import headway
from headway.resource import pb
from headway.testing import History
from headway.testing.history import (
    BookmarkDelivered,
    ChangesDelivered,
    DeliveredResource,
    Fact,
    ReadAnswered,
    RecordingChannel,
    SnapshotEnded,
    WatchOpened,
    WriteAnswered,
)
from headway.testing.history._facts import delivered_resource
from tests.helpers.kube_server import KubeServer
from tests.helpers.truth import Commit
from tests.kubernetes.cluster_history import ClusterHistory
from tests.kubernetes.connected import Program, connected
from tests.kubernetes.test_kube_contract import Maps, until

KIND = ("test", "Pool")
A, B = ("default", "default", "a"), ("default", "default", "b")


def stored(key: tuple[str, str, str], uid: str, revision: int) -> pb.Resource:
    return pb.Resource(
        id=pb.Id(name=key[2], uid=uid, tenancy=pb.Tenancy(partition=key[0], namespace=key[1])), version=str(revision)
    )


A11, B12, A15 = stored(A, "1", 11), stored(B, "2", 12), stored(A, "1", 15)
COMMITS = [
    Commit(11, KIND, A, None, A11, None),
    Commit(12, KIND, B, None, B12, None),
    Commit(13, KIND, B, B12, None, None),
    Commit(15, KIND, A, A11, A15, None),
]
OPENED: list[Fact] = [WatchOpened("w", KIND, ("*", "*", ""), None), SnapshotEnded("w", "store", 10)]


def change(resource: pb.Resource, **fields: Any) -> DeliveredResource:
    return delivered_resource(resource)._replace(**fields)


def delivered(*changes: DeliveredResource) -> ChangesDelivered:
    return ChangesDelivered("w", changes)


FIRST, LAST = delivered(change(A11)), delivered(change(A15))
BOOKMARK = BookmarkDelivered("w", "store", 14, False)
LATE = [change(B12, more=True), change(B12, revision=16, deleted=True, digest="")]


def violations(*facts: Fact) -> set[str]:
    history = ClusterHistory("store", 10)
    for fact in (*OPENED, *facts):
        history.add(fact)
    return {rule for rule, _ in history.violations(COMMITS, 20)}


def read(version: int, sent: float) -> ReadAnswered:
    return ReadAnswered("one", KIND, A, (sent, sent + 0.5), version, version)


WRITTEN = WriteAnswered("users", KIND, A, (1.0, 2.0), None, "acknowledged", change(A15).digest, 15, change(A15), 11)


@pytest.mark.parametrize(
    "facts",
    [
        [FIRST, delivered(change(B12)), delivered(change(B12, revision=13, deleted=True, digest="")), LAST],
        [FIRST, BOOKMARK, LAST],
        [FIRST, BOOKMARK, LAST, delivered(*LATE)],
        [FIRST, BOOKMARK, delivered(*LATE[:1], change(B12, revision=15, deleted=True, more=True), change(A15))],
        [FIRST, BOOKMARK, LAST, WRITTEN, read(11, 0.5), read(11, 1.5), read(15, 1.5), read(15, 3.0)],
    ],
)
def test_good_history_has_no_violation(facts: Sequence[Fact]) -> None:
    assert violations(*facts) == set()


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        ([FIRST, LAST], "reliable"),
        ([BOOKMARK, LAST], "gapless"),
        ([FIRST, BOOKMARK, BookmarkDelivered("w", "store", 18, False)], "bookmarkable"),
        ([FIRST, BOOKMARK, LAST, WRITTEN, read(11, 3.0)], "linearizable"),
        ([FIRST, BOOKMARK, LAST, WRITTEN._replace(expected=9)], "replaced"),
        ([FIRST, delivered(change(A11)), BOOKMARK, LAST], "unique"),
    ],
)
def test_bad_history_breaks_a_rule(facts: Sequence[Fact], rule: str) -> None:
    assert rule in violations(*facts)


def test_object_may_come_into_a_selection_and_leave_it_before_a_bookmark() -> None:
    yes, no = {"counts": "yes"}, {"counts": "no"}
    before, shown, after = (
        pb.Resource(id=A11.id, version=str(revision), metadata=metadata)
        for revision, metadata in ((11, no), (12, yes), (13, no))
    )
    commits = [
        Commit(11, KIND, A, None, before, None),
        Commit(12, KIND, A, before, shown, None),
        Commit(13, KIND, A, shown, after, None),
    ]
    opened = WatchOpened("w", KIND, ("*", "*", ""), None, (("counts", "yes"),))
    late = [change(shown, more=True), change(after, revision=15, deleted=True, digest="", metadata=())]
    for facts in ([BOOKMARK], [BOOKMARK, delivered(*late)], [delivered(late[0]._replace(more=False))]):
        history = ClusterHistory("store", 10)
        for fact in (opened, *OPENED[1:], *facts):
            history.add(fact)
        assert history.violations(commits, 20) == []


async def test_reader_of_a_recorded_stream_may_ask(kube: KubeServer, namespace: str, tmp_path: Path) -> None:
    """Without the question, a reconcile waits for the bookmark that an API server sends once a minute (C4)."""
    program = Program()
    seen: list[str] = []

    @program.app.controller(
        manages=program.config_map.within(namespace=namespace),
        watches=[headway.watch(program.deployment, headway.mappers.owner())],
    )
    async def sites(_: headway.Runtime, request: headway.Request[Any]) -> None:
        seen.append(request.id.name)

    history = History()
    async with connected(kube, program, namespace, tmp_path) as (_, _, channel):
        recording = RecordingChannel("one", history.add).over(channel)
        async with headway.open_workers(recording, program.app) as engine:
            with trio.fail_after(10):
                await engine.wait_idle()
                Maps(kube, namespace).write("web", v="1")
                await until(lambda: "web" in seen)
    of_deployments = {
        fact.watch for fact in history.facts if isinstance(fact, WatchOpened) and fact.kind[1] == "Deployment"
    }
    assert any(isinstance(fact, BookmarkDelivered) and fact.watch in of_deployments for fact in history.facts)
