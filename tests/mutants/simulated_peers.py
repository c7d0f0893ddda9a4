"""Mutants of peerings that the simulation must find, by a run with both engines under one plan of faults."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PEERS = "simulation/test_peers.py"

SIMULATED_PEER_MUTANTS = (
    Mutant(
        "the end of a snapshot removes no copy",
        "peering/stream/_receiver.py",
        "work.commits, work.state = commits(removals), self._state()",
        "work.commits, work.state = [], self._state()",
        _PEERS,
        "copies_survive and history_lost",
    ),
    Mutant(
        "copies are removed before the end of a snapshot",
        "peering/stream/_receiver.py",
        "        work.state, work.replaced = self._state(), replaced\n",
        "        work.state, work.replaced = self._state(), replaced\n"
        "        work.commits = commits(self._copies.outside(()))\n",
        _PEERS,
        "copies_survive and history_lost",
    ),
    Mutant(
        "a stream resumes past lost history",
        "storage/_log.py",
        "if after < self.floor:",
        "if False:",
        _PEERS,
        "copies_survive and history_lost",
    ),
    Mutant(
        "a refused resource is not sent again",
        "peering/stream/_sender.py",
        "                self._retry(id, now)\n",
        "",
        _PEERS,
        "refused_copy",
    ),
    Mutant(
        "copies are exported",
        "peering/stream/_rules.py",
        "            and not peering_of(key[0])\n",
        "",
        _PEERS,
        "nothing_comes_back",
    ),
    Mutant(
        "resources outside the exports are sent",
        "peering/stream/_sender.py",
        "if self._coverage.covered(id.type, key[0], key[1]) is None:",
        "if False:",
        _PEERS,
        "nothing_comes_back",
    ),
    Mutant(
        "a dialer does not follow the lease of the accepting side",
        "peering/links/_dialer.py",
        "            self._target = leader_in(details) or self._next_address()\n",
        "            self._target = None\n",
        _PEERS,
        "another_engine_leads",
    ),
    Mutant(
        "the copies of a deleted peering stay on the other side",
        "peering/links/_controller.py",
        "    await importer.clear()\n",
        "",
        _PEERS,
        "copies_survive and deleted",
    ),
)
