"""The figures of one operator: its calls and its time for a change, and a start with many Websites."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median, quantiles

from benchmarks.kube_peers._cluster import DEPLOYMENTS, Call, Cluster, Seen
from benchmarks.kube_peers._operators import Operator, Side

Figures = dict[str, float]
_SITES = 20
_START = 120.0
_LIMIT, _QUIET, _FEW = 1_200.0, 5.0, 20
_SETTLED, _IDLE = 90.0, 0.2


def counted(calls: list[Call], what: str, reconciles: int) -> Figures:
    """Return the reads, the writes and the reconciles for something."""
    events = [each for each in calls if each.resource == "events"]
    asked = [each for each in calls if each.verb != "watch" and each not in events]
    writes = sum(each.is_write for each in asked)
    return {f"{what}: writes": writes, f"{what}: reads": len(asked) - writes, f"{what}: reconciles": reconciles}


def change(cluster: Cluster, side: Side, changes: int) -> Figures:
    """Measure what a creation and a change of a Website cost, on a cluster with few."""
    cluster.wipe()
    found: Figures = {}
    with _running(cluster, side, "warm", *side.counting) as operator:
        mark, before = 0, 0

        def calls_of(what: str) -> None:
            cluster.wait_quiet()
            found.update(counted(cluster.calls(mark), what, operator.reconciles() - before))

        mark, before = cluster.mark(), operator.reconciles()
        cluster.create("one", host="one.example", pages={"index.html": "Welcome"})
        cluster.wait("it has its Deployment", lambda: cluster.replicas("one") == 1)
        calls_of("creation")
        mark, before = cluster.mark(), operator.reconciles()
        cluster.change("one", image="web:2")
        calls_of("change of the image")
        mark, before = cluster.mark(), operator.reconciles()
        body = {"status": {"replicas": 1, "readyReplicas": 1}}
        cluster.asked("PATCH", f"{DEPLOYMENTS}/one/status", body)
        calls_of("replicas become ready")
    with _running(cluster, side, "timed") as operator:
        return found | _many_changes(cluster, operator, changes)


@contextmanager
def _running(cluster: Cluster, side: Side, first: str, *more: str) -> Iterator[Operator]:
    """Run an operator for a block, which begins when it has done its work for a first Website."""
    operator = Operator(side, cluster.folder / "operators", cluster.config, *side.alone, *more)
    operator.start()
    try:
        cluster.create(first, pages={"index.html": "Welcome"})
        cluster.wait(f"{side.name} has started", lambda: cluster.replicas(first) == 1, _START)
        cluster.wait_quiet()
        yield operator
        operator.terminate()
        cluster.wait("it has ended", lambda: not operator.running)
    finally:
        operator.kill()


def _many_changes(cluster: Cluster, operator: Operator, changes: int) -> Figures:
    for number in range(_SITES):
        cluster.create(f"s{number}")
    cluster.wait("all have their Deployments", lambda: len(cluster.all_replicas()) == _SITES + 3, 120)
    cluster.wait_quiet()
    spent = operator.processor()
    took = _timed(cluster, changes, lambda number: f"s{number % _SITES}")
    cluster.wait_quiet()
    spent = operator.processor() - spent
    return {
        "median_ms": median(took) * 1e3,
        "p99_ms": quantiles(took, n=100)[98] * 1e3,
        "cpu_ms": spent / changes * 1e3,
    }


def _timed(cluster: Cluster, changes: int, name_of: Callable[[int], str]) -> list[float]:
    """Make changes one after the other, and return the seconds until the Deployment of each has it."""
    took = []
    with Seen(cluster) as seen:
        for number in range(changes):
            name, replicas = name_of(number), 2 + number
            began = time.monotonic()
            cluster.change(name, replicas=replicas)
            try:
                took.append(seen.wait(name, replicas) - began)
            except TimeoutError:
                took.append(math.inf)
    return took


def start(cluster: Cluster, side: Side, size: int) -> Figures:
    """Measure a start with some thousand Websites until nothing is left to do, and changes then."""
    with _cloned(cluster, side, size) as operator:
        mark, began = cluster.mark(), datetime.datetime.now(datetime.UTC)
        operator.start()
        cluster.wait("it has connected", lambda: cluster.mark() > mark, _START)
        busy = True
        while busy:
            cluster.wait_quiet(_LIMIT, _QUIET)
            # It may make no call for some time, and still be at work.
            spent = operator.processor()
            time.sleep(_QUIET)
            busy = operator.processor() - spent > _IDLE
        made = [each for each in cluster.calls(mark) if each.resource != "events" and each.verb != "watch"]
        quiet = max((datetime.datetime.fromisoformat(each.at) - began).total_seconds() for each in made)
        took = _timed(cluster, _FEW, lambda number: f"site-{number:05}")
        writes = sum(each.is_write for each in made)
        return {"quiet_s": quiet, "cpu_s": spent, "writes": writes, "many_ms": median(took) * 1e3}


def memory(cluster: Cluster, side: Side, size: int) -> Figures:
    """Measure the memory 90 s after a start with many Websites."""
    with _cloned(cluster, side, size) as operator:
        operator.start()
        time.sleep(_SETTLED)
        if not operator.running:
            # One that has lost its lease ends, and its Pod is started again.
            operator.start()
            time.sleep(_SETTLED)
        rss, pss = operator.memory()
        return {"rss_mb": rss, "pss_mb": pss}


@contextmanager
def _cloned(cluster: Cluster, side: Side, size: int) -> Iterator[Operator]:
    """Prepare an operator, and so many Websites as the same operator has left them."""
    cluster.wipe()
    with _running(cluster, side, "site-00000"):
        pass  # it makes what is copied
    cluster.clone("site-00000", size)
    operator = Operator(side, cluster.folder / "operators", cluster.config, *side.alone)
    try:
        yield operator
    finally:
        operator.kill()
