"""Mutants of quotas: of what they count, of what they refuse, and of how writers keep them together."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ENGINE, _TALLY = "quotas/test_engine.py", "quotas/test_rule.py"
_SQLITE, _ETCD = "quotas/test_sqlite.py", "quotas/test_etcd.py"

QUOTA_MUTANTS = (
    Mutant(
        "a change at the place that a count has reached is not counted",
        "quotas/_rule.py",
        "key <= self._after",
        "key < self._after",
        _TALLY,
    ),
    Mutant(
        "engines that need room in one quota do not compare its key",
        "storage/etcd/layout/_transaction.py",
        "        self._compare_puts(key)\n        self.claims[key]",
        "        self.claims[key]",
        _ETCD,
    ),
    Mutant(
        "a commit does not compare the declared quotas",
        "storage/etcd/_commit.py",
        "        else:\n            draft.compare_rules()\n",
        "",
        _ETCD,
    ),
    Mutant(
        "commits of one transaction do not share the room in a quota",
        "storage/etcd/_batcher.py",
        " or not draft.has_room(taken))",
        ")",
        _ETCD,
    ),
    Mutant(
        "revisions of a lost history keep commits waiting",
        "storage/etcd/_session.py",
        "            self._batcher.forget()\n",
        "            pass\n",
        _ETCD,
        "restored",
    ),
    Mutant(
        "a number above its limit keeps commits waiting that add nothing to it",
        "storage/etcd/layout/_transaction.py",
        "            not more or added + more <= free",
        "            added + more <= free",
        _ETCD,
        "above_its_other",
    ),
    Mutant(
        "a refused transaction of a file still counts",
        "storage/sqlite/_writer.py",
        "            self._rules.lose()\n",
        "",
        _SQLITE,
    ),
    Mutant(
        "the use of a file does not follow its commits",
        "storage/sqlite/_requests.py",
        "            self._rules.follow(changes)\n",
        "",
        _SQLITE,
    ),
    Mutant(
        "a damaged quota keeps a store from opening",
        "storage/sqlite/_rules.py",
        "            with contextlib.suppress(StoreUnusable):\n                yield",
        "            if True:\n                yield",
        _SQLITE,
    ),
    Mutant(
        "a marked resource takes statuses without limit",
        "quotas/_limits.py",
        "    return _status_size(new) <= max(STATUS_ROOM, _status_size(old))",
        "    return is_marked(new.metadata) or _status_size(new) <= max(STATUS_ROOM, _status_size(old))",
        _TALLY,
    ),
    Mutant(
        "a marked resource takes another encoding of its content",
        "service/_write.py",
        "value=stored.data.value)",
        "value=updated.data.value)",
        "service/test_write_marked.py",
    ),
    Mutant(
        "a quota may limit a type that no quota counts",
        "quotas/_checks.py",
        "            _check_limited_type(access, resource)\n",
        "",
        _ENGINE,
        "invalid",
    ),
    Mutant(
        "a caller sees quotas that they may not read",
        "quotas/_service.py",
        " if self._access.may_read(_id(each.limit.name))",
        "",
        _ENGINE,
        "may_read",
    ),
    Mutant(
        "clients over HTTP repeat a write that exceeds a quota",
        "api/_refusals.py",
        "Row(CommitRefused, Code.RESOURCE_EXHAUSTED, 403)",
        "Row(CommitRefused, Code.RESOURCE_EXHAUSTED, 429)",
        "http/test_codes.py",
        "quota",
    ),
)
