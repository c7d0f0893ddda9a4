"""Mutants of quotas: of what they count, of what they refuse, and of how writers keep them together."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ENGINE, _TALLY = "test_quotas.py", "storage/test_quota_tally.py"
_SQLITE, _ETCD = "storage/test_sqlite_quotas.py", "storage/test_etcd_quotas.py"

QUOTA_MUTANTS = (
    Mutant(
        "a change at the place that a count has reached is not counted",
        "storage/_quota_tally.py",
        "key <= self._after",
        "key < self._after",
        _TALLY,
    ),
    Mutant(
        "engines that need room in one quota do not compare its key",
        "storage/etcd/layout/_transaction.py",
        "        self._compare_puts(key)\n        self.rooms[key]",
        "        self.rooms[key]",
        _ETCD,
    ),
    Mutant(
        "a commit does not compare the declared quotas",
        "storage/etcd/_commit.py",
        "        else:\n            draft.compare_quotas()\n",
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
        "a refused transaction of a file still counts",
        "storage/sqlite/_quotas.py",
        "            self._read(connection)\n\n    def keep",
        "\n    def keep",
        _SQLITE,
    ),
    Mutant(
        "the use of a file does not follow its commits",
        "storage/sqlite/_quotas.py",
        "                if place in self._uses:",
        "                if False:",
        _SQLITE,
    ),
    Mutant(
        "a damaged quota keeps a store from opening",
        "storage/sqlite/_quotas.py",
        "            with contextlib.suppress(StoreUnusable):\n                resource",
        "            if True:\n                resource",
        _SQLITE,
    ),
    Mutant(
        "quotas are copied in the order of kinds",
        "storage/upkeep/_copy.py",
        "(kind == QUOTA_KIND, kind)",
        "(False, kind)",
        _ENGINE,
        "copy",
    ),
    Mutant(
        "a stopped copy continues under the quotas that it has copied",
        "storage/upkeep/_copy.py",
        "    copied.written += await _remove_all(target, QUOTA_KIND)\n",
        "",
        _ENGINE,
        "copy",
    ),
    Mutant(
        "a commit that etcd decides several times counts as several refusals",
        "storage/etcd/_commit.py",
        "        charged = () if quotas is None else quotas.charged(applied)\n",
        "        try:\n            charged = () if quotas is None else quotas.charged(applied)\n"
        "        except StorageError as error:\n            quotas.limits.count_refusal(error)\n            raise\n",
        _ETCD,
    ),
    Mutant(
        "a marked resource takes statuses without limit",
        "storage/_quotas.py",
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
        "service/_quota_checks.py",
        "            _check_limited_type(access, resource)\n",
        "",
        _ENGINE,
        "invalid",
    ),
    Mutant(
        "quotas are created in a store that keeps none",
        "service/_quota_checks.py",
        "            check_kept(self._backend)\n",
        "",
        _ENGINE,
        "keeps_no",
    ),
    Mutant(
        "a caller sees quotas that they may not read",
        "service/_quota.py",
        " if self._access.may_read(_id(each.limit.name))",
        "",
        _ENGINE,
        "may_read",
    ),
    Mutant(
        "a caller without rights to quotas lists them",
        "service/_quota.py",
        '        self._access.check_list(QUOTA.name, Within("", ""))\n',
        "",
        _ENGINE,
        "rights",
    ),
    Mutant(
        "clients over HTTP repeat a write that exceeds a quota",
        "api/_refusals.py",
        "Row(QuotaExceeded, Code.RESOURCE_EXHAUSTED, 403,",
        "Row(QuotaExceeded, Code.RESOURCE_EXHAUSTED, 429,",
        "http/test_codes.py",
        "quota",
    ),
)
