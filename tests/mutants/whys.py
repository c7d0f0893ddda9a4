"""Mutants of the journal and of the answers to why a resource is not done."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_JOURNAL = "journal/test_journal.py"
_FILE = "journal/test_file.py"
_HERE = "why/test_here.py"
_WORKERS = "why/test_workers.py"
_RETRY = "why/test_retry.py"
_LEASES = "why/test_leases.py"
_PAST = "why/test_past.py"
_ERRORS = "why/test_versions_after_errors.py"
_SECRETS = "reconcile/test_secret_reads.py"

WHY_MUTANTS = (
    Mutant(
        "the journal grows without bound",
        "journal/_journal.py",
        "while self._size > self.limit:",
        "while False:",
        _JOURNAL,
    ),
    Mutant(
        "the changes that predicates turn away are kept without bound",
        "journal/_journal.py",
        "if len(known) > self._most_turned_away:",
        "if False:",
        _JOURNAL,
    ),
    Mutant(
        "a controller takes the memory of another one's journal",
        "journal/_journal.py",
        "share = (self._size - self._size // 4) // len(self._controllers)",
        "share = self._size * 10",
        _JOURNAL,
    ),
    Mutant(
        "the journal keeps exceptions",
        "journal/_journal.py",
        "story(value) if isinstance(value, BaseException) else value",
        "value",
        _JOURNAL,
    ),
    Mutant(
        "the entries of an engine's end are not in the file of its journal",
        "engine/_running.py",
        "await file.finish()",
        "pass",
        _FILE,
    ),
    Mutant(
        "the buffer of the journal's file is not bounded",
        "journal/_file.py",
        "if len(self._waiting) >= BUFFER:",
        "if False:",
        _FILE,
    ),
    Mutant(
        "a torn line of the journal's file takes the next one with it",
        "journal/_file.py",
        "if _is_torn(self.path):",
        "if False:",
        _FILE,
    ),
    Mutant(
        "everyone may ask why a resource is not done",
        "why/_service.py",
        "if not self._may(id):",
        "if False:",
        _WORKERS,
    ),
    Mutant(
        "everyone may let a resource be reconciled now",
        "why/_service.py",
        "        self._access.check_write(id.message(), None)\n",
        "",
        _RETRY,
    ),
    Mutant(
        "an answer names resources that the caller may not observe",
        "why/_service.py",
        "if it is None or it == why.resource or not it.name or ask(permissions.may_observe, id_of(it)):",
        "if True:",
        _WORKERS,
    ),
    Mutant(
        "everyone may answer in the name of a controller",
        "why/_service.py",
        "if self._permissions is not None and not ask(self._permissions.may_take_lease, each.name):",
        "if False:",
        _WORKERS,
    ),
    Mutant(
        "a process speaks for the controllers of others",
        "why/_host.py",
        "if name in attending.controllers\n                and",
        "if True\n                and",
        _WORKERS,
    ),
    Mutant(
        "whatever is stuck is listed to everyone",
        "why/_service.py",
        "types = None if permissions is None else allowed",
        "types = None",
        _WORKERS,
    ),
    Mutant(
        "a process lists what is stuck of types that the caller may not observe, in the place of others",
        "why/_local.py",
        "managed = items if wanted else []",
        "managed = items",
        _LEASES,
    ),
    Mutant(
        "the last success is not kept",
        "why/answers/_past.py",
        "if len(found) < most or (success and not succeeded):",
        "if len(found) < most:",
        _PAST,
    ),
    Mutant(
        "failures are one although they wrote something else",
        "why/answers/_past.py",
        "(each.type, each.key, each.what, each.status_key) for each",
        "() for each",
        _PAST,
    ),
    Mutant(
        "a missed deadline does not let the versions of reads be recorded",
        "run/_worker.py",
        "error = alongside or self._timeout(id, canceled)\n            self._note_versions(reconciling)",
        "error = alongside or self._timeout(id, canceled)",
        _ERRORS,
    ),
    Mutant(
        "a failure does not let the versions of reads be recorded for longer",
        "run/_worker.py",
        "reads.renew()",
        "pass",
        _PAST,
    ),
    Mutant(
        "a read of a view is recorded with the version of the cache",
        "cache/_view.py",
        "if isinstance(reads, LookingUp):",
        "if False:",
        _PAST,
    ),
    Mutant(
        "a daemon's error shows what it has read",
        "controller/_daemons.py",
        "READING.set(reads)",
        "pass",
        _SECRETS,
    ),
    Mutant(
        "a source's error shows what it has read",
        "run/_sources.py",
        "with SecretReads(self._find, self._definition.types).noted():",
        "if True:",
        _SECRETS,
    ),
    Mutant(
        "the reads of a daemon are kept without bound",
        "reconcile/_secret_reads.py",
        "if len(self._kept) > MOST:",
        "if False:",
        _SECRETS,
    ),
    Mutant(
        "the resolution of a write is not forgotten",
        "run/_fence.py",
        "                self.hold = None\n                self._queue.release(self)\n",
        "                self._queue.release(self)\n",
        _HERE,
    ),
    Mutant(
        "a change that a predicate turned away is not recorded",
        "run/_change_mapper.py",
        "if self._journal is not None and not backlog:",
        "if False:",
        _HERE,
    ),
    Mutant(
        "the reads of one reconcile are counted to the next one",
        "run/_outcomes.py",
        "        reads.clear()\n",
        "        pass\n",
        _HERE,
    ),
    Mutant(
        "keys are held because of the last unknown write",
        "run/_fence.py",
        "        if self.hold is None:\n",
        "        if True:\n",
        "run/test_fence.py",
    ),
    Mutant(
        "the backlog that a predicate turns away is recorded as changes",
        "run/_change_mapper.py",
        "if self._journal is not None and not backlog:",
        "if self._journal is not None:",
        "run/test_change_mapper.py",
    ),
)
