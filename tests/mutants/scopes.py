"""Mutants of scopes, from the filter of a store to the cache of a run."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CONFORMANCE = "storage/test_conformance.py"
_CONTROLLERS = "run/test_scoped_controllers.py"
_INDEX = "storage/test_metadata_index.py"
_RANGES = "resource/test_scoped.py"

SCOPE_MUTANTS = (
    Mutant(
        "leaving a scope is not delivered",
        "storage/_filter.py",
        "elif formers and",
        "elif False and",
        _CONFORMANCE,
        "memory-leaving_a_scope",
    ),
    Mutant(
        "the file of a store keeps no state before a change of metadata",
        "storage/sqlite/_requests.py",
        "if same_id and metadata_bytes(body) == metadata_bytes(row.body):",
        "if same_id:",
        _CONFORMANCE,
        "sqlite-leaving_a_scope",
    ),
    Mutant(
        "a watch by metadata resumes where the states before changes are missing",
        "storage/_resuming.py",
        "if within.metadata and after < log.formers_after:",
        "if False:",
        "storage/test_sqlite_formats.py",
        "by_metadata",
    ),
    Mutant(
        "a watch by metadata resumes where a state before a change is damaged",
        "storage/sqlite/_history.py",
        "            formers_floor = max(formers_floor, revision)\n",
        "            pass\n",
        "storage/test_sqlite_disk.py",
        "former",
    ),
    Mutant(
        "an opening loses the state before the first change that is kept",
        "storage/sqlite/_history.py",
        "connection.execute(sql.READ_FORMERS, (begin,))",
        "connection.execute(sql.READ_FORMERS, (begin + 1,))",
        "storage/test_sqlite_restart.py",
        "scope",
    ),
    Mutant(
        "a watch that lags misses what was trimmed before its read of the file",
        "storage/sqlite/_history.py",
        "    if after < floor:\n",
        "    if False:\n",
        "storage/test_sqlite_history.py",
        "trimmed",
    ),
    Mutant(
        "a page of the file's history ends within a commit",
        "storage/sqlite/_history.py",
        " and revision > page.changes[-1].revision:",
        ":",
        "storage/test_sqlite_history.py",
        "resumed",
    ),
    Mutant(
        "a watch that resumes below the log begins at the first change that the log has",
        "storage/_log.py",
        "return Cursor(self._kind(kind), -1, after)",
        "return Cursor(self._kind(kind), self._kind(kind).start + self._kind(kind).dropped, after)",
        "storage/test_sqlite_history.py",
        "resumed",
    ),
    Mutant(
        "bytes that look like the metadata are taken for it",
        "storage/sqlite/_rows.py",
        "return self._within.select(decoded) if self._within.metadata else decoded",
        "return decoded",
        _CONFORMANCE,
        "sqlite-a_scope_by_metadata",
    ),
    Mutant(
        "a range of keys is skipped that has a match",
        "resource/_within.py",
        "(first[2] <= prefix or first[2].startswith(prefix))",
        "first[2] <= prefix",
        _RANGES,
    ),
    Mutant(
        "a change during the build of an index is left out",
        "storage/_metadata_indexes.py",
        "for (of, name), (index, _) in self.made.items():\n                if of == kind",
        "for (of, name), (index, _) in self.made.items():\n                if index.ready and of == kind",
        _INDEX,
    ),
    Mutant(
        "an index is used before it is complete",
        "storage/_metadata_indexes.py",
        "entry is None or not entry[0].ready",
        "entry is None",
        _INDEX,
    ),
    Mutant(
        "an index begins with a later resource that has the key",
        "storage/_metadata_indexes.py",
        "            self._left_out.add(kind)\n",
        "            pass\n",
        _INDEX,
    ),
    Mutant(
        "an index loses the resources that enter a value",
        "storage/_metadata_index.py",
        "                keys.append(key)\n",
        "                if entry.count == 1:\n                    keys.append(key)\n",
        _INDEX,
    ),
    Mutant(
        "an index with wrong keys counts as exact",
        "storage/_metadata_index.py",
        "exact=len(entry.keys) == entry.count",
        "exact=len(entry.keys) <= 2 * entry.count",
        _INDEX,
    ),
    Mutant(
        "an exact index decides for a scope by other arguments as well",
        "storage/_reads.py",
        "if found.exact and within.every_key and len(within.metadata) == 1:",
        "if found.exact:",
        _INDEX,
    ),
    Mutant(
        "a server that ignores the filter is believed",
        "client/_scoped_stream.py",
        "if first != ScopeConfirmed(self._selector):",
        "if False:",
        "service/test_scopes.py",
        "ignores_the_filter",
    ),
    Mutant(
        "the filter of a watch is read before the caller's rights",
        "service/_watch_list.py",
        '    access.check_list(type.name, within, "watch")\n'
        "    within = within._replace(metadata=check_selector(request.metadata_filter))\n",
        "    within = within._replace(metadata=check_selector(request.metadata_filter))\n"
        '    access.check_list(type.name, within, "watch")\n',
        "service/test_scopes.py",
        "without_rights",
    ),
    Mutant(
        "an own write that leaves the scope stays in the cache",
        "cache/_informer.py",
        "if self._range.admits(stored) else None",
        "if True else None",
        _CONTROLLERS,
        "own_write",
    ),
    Mutant(
        "a key outside the managed scope is reconciled",
        "mapper/_mappers.py",
        "elif within.matches(id.key):",
        "else:",
        _CONTROLLERS,
        "do_not_disturb",
    ),
    Mutant(
        "a resource outside the scope is written over",
        "reconcile/_blocks.py",
        "if force or (current is None and cache.may_lack(wanted.id)):",
        "if False:",
        _CONTROLLERS,
        "apply_never_replaces",
    ),
    Mutant(
        "an own write in a scope by metadata shows as absent",
        "cache/_informer.py",
        "if self._range.admits(stored) else None",
        "if self._range.admits(stored) and not self._range.metadata else None",
        "simulation/test_scopes.py",
        "reads_its_writes",
    ),
    Mutant(
        "a watcher of a scope keeps what has left it",
        "storage/_filter.py",
        "kept.append(change._replace(resource=former, deleted=True))",
        "pass",
        "testing/test_watch_histories.py",
        "in_memory_keep_every_rule",
    ),
)
