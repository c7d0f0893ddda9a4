"""Mutants of the simulation of a cluster, and of the adapter on it. No API server is needed to find them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_EXPLORED = "kubernetes/test_explored.py"

SIMULATED_CLUSTER_MUTANTS = (
    Mutant(
        "caches stay as they were after a restore that skips revisions",
        "kubernetes/_watch.py",
        "if revision < int(known.version) <= here:",
        "if False:",
        "kubernetes/test_on_model.py",
        "skips_revisions",
    ),
    Mutant(
        "a checkpoint is above what a stream may bring late",
        "kubernetes/_leases.py",
        "await self._cluster.proven(request.revision)",
        "request.revision",
        "kubernetes/test_on_model.py",
        "hides",
    ),
    Mutant(
        "an apply that leaves out a field that it owns makes no call",
        "kubernetes/_managers.py",
        'inner.keys() == {f"f:{name}" for name in wanted} and all(',
        "all(",
        "kubernetes/test_applied.py",
        "changes_nothing",
    ),
    Mutant(
        "an apply makes no call by the owned fields of another version",
        "kubernetes/_applied.py",
        "if version != known.version or verb.manager",
        "if verb.manager",
        "kubernetes/test_applied.py",
        "known_version",
    ),
    Mutant(
        "the garbage collector of a simulated cluster does nothing",
        "testing/simulation/world/_cluster.py",
        "if not self._sweeps and has_work(self.model):",
        "if False:",
        _EXPLORED,
        "dependents_with_it",
    ),
    Mutant(
        "a simulated API server that has taken over is not behind",
        "testing/simulation/world/_cluster.py",
        "            other.cache.hold()\n",
        "",
        _EXPLORED,
        "lag_after",
    ),
    Mutant(
        "users of a restored cluster forget the statuses that they wrote",
        "testing/simulation/world/_cluster.py",
        'if verb is not None and verb.name != "apply":',
        "if False:",
        _EXPLORED,
        "ask_for_a_status",
    ),
    Mutant(
        "a lease of a simulated cluster goes to another process than the heir",
        "testing/simulation/world/_cluster.py",
        "            while self._heirs.get(name, holder) != holder:\n",
        "            while False:\n",
        _EXPLORED,
        "two_processes",
    ),
    Mutant(
        "history that is lost on a simulated cluster can be resumed",
        "testing/simulation/world/_cluster_link.py",
        "        self._evict(kind)\n        self._drop(kind)\n",
        "        self._drop(kind)\n",
        _EXPLORED,
        "watch_cache",
    ),
    Mutant(
        "a uid of a simulated cluster is another one in each run",
        "testing/kubernetes/_cluster.py",
        "of = repr((*name, self.created[name], self._dry_runs if dry_run else 0))",
        "of = str(uuid.uuid4())",
        _EXPLORED,
        "same_uid",
    ),
    Mutant(
        "a value that only a fault replaces counts as random",
        "testing/simulation/oracles/_replaced.py",
        "            and not {*each.words} & {*self.words}\n",
        "",
        "simulation/test_replaced.py",
        "only_a_fault",
    ),
    Mutant(
        "a value that is renewed without faults counts as replaced",
        "testing/simulation/oracles/_replaced.py",
        "if each.field not in usual and",
        "if",
        "simulation/test_replaced.py",
        "without_faults",
    ),
)
