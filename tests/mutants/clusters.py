"""Mutants of the connection to the API server of a Kubernetes cluster."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_HTTP = "kubernetes/test_http.py"
_REFUSALS = "kubernetes/test_refusals.py"
_CREDENTIALS = "kubernetes/test_credentials.py"

CLUSTER_MUTANTS = (
    Mutant(
        "a lost write certainly had no effect",
        "kubernetes/_errors.py",
        "return Interrupted(code, text) if request.write else NotBegun(code, text)",
        "return NotBegun(code, text)",
        _HTTP,
        "lost_write",
    ),
    Mutant(
        "a write is repeated after the 503 of a proxy",
        "kubernetes/_errors.py",
        'status.reason == "ServiceUnavailable" or not request.write',
        "True",
        _REFUSALS,
        "503_of_a_proxy",
    ),
    Mutant(
        "a watch that is cut within a line ends cleanly",
        "kubernetes/_http.py",
        "        if any(rest):\n",
        "        if False:\n",
        _HTTP,
        "within_a_line",
    ),
    Mutant(
        "a separator in a value cuts an event",
        "kubernetes/_http.py",
        'piece.split(b"\\n")',
        "piece.splitlines()",
        _HTTP,
        "only_line_feeds",
    ),
    Mutant(
        "a plugin ends with the call that waits for it",
        "kubernetes/_credentials.py",
        "self._tasks.start_soon(self._run, self._plugin)",
        "await self._run(self._plugin)",
        _CREDENTIALS,
        "plugin_goes_on",
    ),
    Mutant(
        "leases wait for the connections of calls",
        "kubernetes/_http.py",
        'not stream and not request.path.startswith("/apis/coordination.k8s.io/")',
        "not stream",
        _HTTP,
        "leases_do_not_wait",
    ),
)
