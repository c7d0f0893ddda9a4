"""What one operator does under each fault. Each function makes the fault, and returns what was seen in a few words."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from benchmarks.kube_peers._cluster import DEPLOYMENTS, SITES, Cluster
from benchmarks.kube_peers._operators import Operator, Side
from benchmarks.kube_peers._proxy import Proxy, running_proxy

LIMIT = 60.0
_SITES = 40
_FREEZE = 25.0
_SLOW = 10.0
_LOST = 300
_BEHIND = 3.0


class Replica(NamedTuple):
    """One process of an operator, and its way to the API server."""

    operator: Operator
    proxy: Proxy


class Scene:
    """A cluster with an operator of some processes, none of which runs at first."""

    def __init__(self, cluster: Cluster, side: Side, replicas: Sequence[Replica]) -> None:
        self.cluster, self.side, self.replicas = cluster, side, replicas
        self.operator, self.proxy = replicas[0]

    def start(self) -> None:
        """Start the first process, and wait until it works."""
        self.operator.start()
        self.cluster.create("warm")
        self.cluster.wait("the operator has started", lambda: self.cluster.replicas("warm") == 1, 120)

    def create(self, count: int = _SITES) -> None:
        """Create Websites with 1 replica, and wait until all have their Deployments."""
        for number in range(count):
            self.cluster.create(f"s{number}")
        there = count + (self.cluster.replicas("warm") is not None)
        self.cluster.wait("all have Deployments", lambda: len(self.cluster.all_replicas()) == there, 180)
        self.cluster.wait_quiet()

    def change(self, replicas: int, count: int = _SITES) -> None:
        """Change all of these Websites."""
        for number in range(count):
            self.cluster.change(f"s{number}", replicas=replicas)

    def wrong(self, replicas: int, count: int = _SITES) -> int:
        """Return the number of Deployments that have not so many replicas."""
        found = self.cluster.all_replicas()
        return sum(found.get(f"s{number}") != replicas for number in range(count))

    def healed(self, done: Callable[[], bool], limit: float = LIMIT) -> str:
        """Wait until something is so, and say after how many seconds, or that it was not."""
        try:
            return f"after {self.cluster.wait('it', done, limit):.1f} s"
        except TimeoutError:
            return f"not within {limit:.0f} s"


def slow_list(scene: Scene) -> str:
    """Start while no list of Deployments begins for 10 s, with 1 of 40 Websites changed meanwhile."""
    scene.start()
    scene.create()
    scene.operator.terminate()
    scene.cluster.wait("it has ended", lambda: not scene.operator.running)
    scene.cluster.change("s7", replicas=3)
    began = time.monotonic()
    scene.proxy.slow = ("/deployments$", began + _SLOW)
    scene.operator.start()
    scene.cluster.wait("it has its effect", lambda: scene.cluster.replicas("s7") == 3)
    scene.cluster.wait_quiet()
    made = scene.proxy.writes(began)
    early = [each for each in made if each.at < began + _SLOW]
    return f"{len(early)} writes before it, {len(made)} in all"


def restored(scene: Scene) -> str:
    """Restore etcd from a backup under the running operator; then change one Website, and delete a Deployment."""
    cluster = scene.cluster
    scene.start()
    scene.create(5)
    copy = cluster.folder / "backup"
    cluster.kube.save_store(copy)
    for number in range(_LOST):
        cluster.asked("PATCH", f"{SITES}/warm", {"metadata": {"labels": {"turn": f"t{number}"}}})
    for replicas in (2, 3):
        scene.change(replicas, 5)
        cluster.wait("it has its effect", lambda: scene.wrong(replicas, 5) == 0)  # noqa: B023  # waits at once
    cluster.wait_quiet()
    cluster.kube.restore_store(copy)
    shutil.rmtree(copy)
    cluster.wait("the server is ready", lambda: cluster.replicas("s1") == 1)
    cluster.change("s1", replicas=4)
    cluster.asked("DELETE", f"{DEPLOYMENTS}/s2")

    def is_right() -> bool:
        return cluster.replicas("s1") == 4 and cluster.replicas("s2") is not None

    took = scene.healed(is_right)
    if took.startswith("after"):
        return f"right {took}"
    scene.operator.kill()
    scene.operator.start()
    return f"right {took}; {scene.healed(is_right)} of a restart"


def disconnected(scene: Scene) -> str:
    """Cut all connections for 5 s; meanwhile delete a Deployment, and delete a Website and make it again."""
    cluster = scene.cluster
    scene.start()
    scene.create(5)
    scene.proxy.cut = True
    scene.proxy.end_connections()
    cluster.asked("DELETE", f"{DEPLOYMENTS}/s1")
    cluster.asked("DELETE", f"{SITES}/s2")
    cluster.create("s2", replicas=3)
    new = cluster.get(SITES, "s2")
    assert new is not None
    time.sleep(5)
    scene.proxy.cut = False

    def is_owned() -> bool:
        found = cluster.get(DEPLOYMENTS, "s2")
        owners = [] if found is None else [each["uid"] for each in found["metadata"].get("ownerReferences", ())]
        return new["metadata"]["uid"] in owners and cluster.replicas("s2") == 3

    again = scene.healed(is_owned)
    made = scene.healed(lambda: cluster.replicas("s1") is not None)
    return f"new Website right {again}, then the Deployment there {made}"


def lost_answer(scene: Scene) -> str:
    """Lose the answers to 3 creations of Deployments, which were stored."""
    cluster = scene.cluster
    scene.start()
    cluster.wait_quiet()
    scene.proxy.loses = ("/deployments(/|$)", 3)
    began = time.monotonic()
    for number in range(3):
        cluster.create(f"s{number}")
    took = scene.healed(lambda: all(_has_status(cluster, f"s{number}") for number in range(3)), 2 * LIMIT)
    cluster.wait_quiet()
    writes = [each for each in scene.proxy.writes(began) if "/deployments" in each.path]
    refused = sum(each.status >= 400 for each in writes)
    return f"all done {took}, {len(writes)} writes of 3 Deployments, {refused} refused"


def frozen_leader(scene: Scene) -> str:
    """Freeze one of two processes in mid-work for longer than its lease, and let it continue."""
    cluster, (first, second) = scene.cluster, scene.replicas
    scene.start()
    scene.create()
    second.operator.start()
    time.sleep(5)
    scene.change(2)
    first.operator.pause()
    froze = time.monotonic()
    scene.change(5)
    took = scene.healed(lambda: scene.wrong(5) == 0, 2 * LIMIT)
    time.sleep(max(0.0, _FREEZE - (time.monotonic() - froze)))
    cluster.wait_quiet()
    thawed = time.monotonic()
    first.operator.resume()
    rewound = 0
    while time.monotonic() < thawed + 5:
        rewound = max(rewound, scene.wrong(5))
        time.sleep(0.02)
    late = first.proxy.writes(thawed)
    stored = sum(each.status < 400 for each in late)
    end = scene.healed(lambda: scene.wrong(5) == 0)
    lasts = "" if rewound == 0 else f", right again {end}"
    old = f"the old one wrote {stored}, {len(late) - stored} refused"
    return f"the other took over {took}; {old}; {rewound} rewound{lasts}"


def killed(scene: Scene) -> str:
    """Kill it in the middle of 40 changes, and start it again at once."""
    scene.start()
    scene.create()
    scene.change(2)
    scene.operator.kill()
    left = scene.wrong(2)
    scene.operator.start()
    took = scene.healed(lambda: scene.wrong(2) == 0, 2 * LIMIT)
    return f"{left} of {_SITES} left to do, done {took}"


def stale_read(scene: Scene) -> str:
    """Let watches be 3 s behind, create 5 Websites, and touch them at once 3 times."""
    cluster = scene.cluster
    scene.start()
    cluster.wait_quiet()
    scene.proxy.lag = ("/(deployments|services|configmaps|ingresses)$", _BEHIND)
    began = time.monotonic()
    for number in range(5):
        cluster.create(f"s{number}", host="a.example")
    for turn in range(3):
        cluster.wait("it works", lambda: all(cluster.get(SITES, f"s{number}") for number in range(5)))
        time.sleep(0.4)
        for number in range(5):
            cluster.asked("PATCH", f"{SITES}/s{number}", {"metadata": {"labels": {"turn": f"t{turn}"}}})
    cluster.wait("all are there", lambda: scene.wrong(1, 5) == 0)
    cluster.wait_quiet(quiet=2 * _BEHIND)
    writes = [each for each in scene.proxy.writes(began) if not re.search("/websites/", each.path)]
    refused = sum(each.status == 409 for each in writes)
    return f"{len(writes)} writes of 20 objects, {refused} refused with 409"


def _has_status(cluster: Cluster, name: str) -> bool:
    found = cluster.get(SITES, name)
    return bool(found and found.get("status", {}).get("conditions"))


FAULTS: dict[str, Callable[[Scene], str]] = {
    "start with 40 Websites, 1 changed; no list of Deployments for 10 s": slow_list,
    "etcd restored from a backup, 300 writes older": restored,
    "no connection for 5 s; a Deployment deleted, a Website made anew": disconnected,
    "answers to 3 writes lost": lost_answer,
    "one of two processes frozen for 25 s in mid-work": frozen_leader,
    "killed in mid-work and started again": killed,
    "watches 3 s behind, 5 new Websites touched 3 times": stale_read,
}
"""The faults, by their names in the table."""


@contextmanager
def scene(cluster: Cluster, side: Side, *, peers: bool) -> Iterator[Scene]:
    """Prepare a scene, and end its processes afterwards.

    Args:
        peers: True if two processes run. Those of kopf must be told of each other.
    """
    cluster.wipe()
    with ExitStack() as ending:
        replicas = []
        for name in ("one", "two"):
            proxy = ending.enter_context(running_proxy(cluster.kube, name, cluster.folder))
            priority = 100 if name == "one" else 50
            more = ["--peering=websites", f"--priority={priority}"] if side.is_kopf and peers else side.alone
            operator = Operator(side, cluster.folder / "operators" / name, proxy.config, *more)
            ending.callback(operator.kill)
            replicas.append(Replica(operator, proxy))
        yield Scene(cluster, side, replicas)


def seen(cluster: Cluster, side: Side, fault: Callable[[Scene], str]) -> str:
    """Return what an operator has done under a fault."""
    with scene(cluster, side, peers=fault is frozen_leader) as made:
        try:
            return fault(made)
        except TimeoutError as error:
            return f"({error})"
