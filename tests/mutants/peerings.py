"""Mutants of peerings: of their secrets, of the exchange, of their partitions, and of their deletion."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SECRETS = "peering/test_secrets.py"
_EXCHANGE = "peering/test_exchange.py"
_ESTABLISH = "peering/test_establish.py"
_LIFECYCLE = "peering/test_lifecycle.py"
_REFUSALS = "peering/test_stream_refusals.py"
_EXPORTS = "peering/test_export_bounds.py"
_ENDINGS = "peering/test_endings.py"
_CUT_OFF = "peering/test_deletion_while_cut_off.py"

PEERING_MUTANTS = (
    Mutant(
        "another dialer exchanges a token again",
        "peering/_secrets.py",
        "if record.exchanged_by and not _fits(by, record.exchanged_by):",
        "if False:",
        _SECRETS,
    ),
    Mutant(
        "the first use of a stream's secret does not make it active",
        "peering/_secrets.py",
        'record.active_hash, record.pending_hash = record.pending_hash, ""',
        "pass",
        _SECRETS,
    ),
    Mutant(
        "a token may be exchanged again after its first stream",
        "peering/_secrets.py",
        "record.exchanged_by = _USED",
        "pass",
        _SECRETS,
    ),
    Mutant(
        "a token does not expire",
        "peering/_secrets.py",
        "if not (_fits(given, record.token_hash) & holds):",
        "if not _fits(given, record.token_hash):",
        _SECRETS,
    ),
    Mutant(
        "another dialer takes over a peering",
        "peering/_secrets.py",
        "if record.active_hash and record.dialer_id != dialer_id:",
        "if False:",
        _SECRETS,
    ),
    Mutant(
        "an exchange that loses a race overwrites the winner's",
        "peering/_secrets.py",
        "            except StorageError:\n                continue",
        "            except StorageError:\n                pass",
        _SECRETS,
        "concurrent",
    ),
    Mutant(
        "a token for TLS is exchanged in plain text",
        "peering/_exchange.py",
        "plain_text = peer is not None and not stream.encrypted",
        "plain_text = False",
        _EXCHANGE,
        "plain_text",
    ),
    Mutant(
        "a host may fail as often as it likes",
        "peering/_exchange.py",
        "host.failures.add(caller, trio.current_time())",
        "pass",
        _EXCHANGE,
        "bounded_rate",
    ),
    Mutant(
        "everyone writes to the partition of a peering",
        "service/_peering.py",
        "if peering and not access.writes_copies:",
        "if False:",
        _ESTABLISH,
        "only_the_peering",
    ),
    Mutant(
        "a deletion reaches the partition of a peering",
        "service/_delete.py",
        "    check_copies(access, type.kind, key)\n",
        "",
        _ESTABLISH,
        "only_the_peering",
    ),
    Mutant(
        "a cluster-scoped type is exported",
        "service/_peering.py",
        "if type.scope not in (Scope.PARTITION, Scope.NAMESPACE):",
        "if False:",
        _ESTABLISH,
        "cannot_be_copied",
    ),
    Mutant(
        "an export reveals what its writer may not read",
        "service/_peering.py",
        "        access.check_read_all(type, partition, namespace, what)\n",
        "",
        _EXCHANGE,
        "needs_the_right",
    ),
    Mutant(
        "resources in the partition are not noticed",
        "peering/_partition.py",
        "found, _ = await backend.list(kind, Within(partition), limit=1)",
        "found = ()",
        _ESTABLISH,
        "holds_resources",
    ),
    Mutant(
        "an exchange without an answer is not repeated",
        "peering/_lifecycle.py",
        "return failed, requeue_after(RETRY)",
        "return failed, None",
        _LIFECYCLE,
        "until_the_other_side_is_back",
    ),
    Mutant(
        "the dialer of a deleted peering is a stranger",
        "peering/_lifecycle.py",
        "await host.secrets.terminate(peering.id.uid)",
        "await host.secrets.forget(peering.id.uid)",
        _LIFECYCLE,
        "deleting_a_peering",
    ),
    Mutant(
        "a peering that exports a dropped type cannot be deleted",
        "service/_peering.py",
        "if type.kind == PEERING.kind and not access.writes_copies:",
        "if type.kind == PEERING.kind:",
        _LIFECYCLE,
        "dropped_an_exported_type",
    ),
    Mutant(
        "a resource that is too large to be sent is taken for a deleted one",
        "peering/_receiver.py",
        """                self._copies.see(id)
                self._remember(""",
        "                self._remember(",
        _REFUSALS,
        "too_large",
    ),
    Mutant(
        "a feed that resumes forgets what is too large to be sent",
        "peering/_sender.py",
        """        if not self._complete:
            self._too_large.clear()""",
        "        self._too_large.clear()",
        _REFUSALS,
        "too_large",
    ),
    Mutant(
        "a peering's exports are more than one subscription reads",
        "service/_peering.py",
        "MAX_EXPORTS = MAX_SUBJECTS",
        "MAX_EXPORTS = 100",
        _EXPORTS,
        "as_many_exports",
    ),
    Mutant(
        "the role of a peering changes while its dialer runs",
        "service/_write.py",
        "if type.kind == PEERING.kind:",
        "if False:",
        _EXPORTS,
        "role",
    ),
    Mutant(
        "a dialer resets its stream right after Terminated",
        "peering/_link.py",
        "with trio.move_on_after(TOLD):",
        "with trio.move_on_after(0):",
        _ENDINGS,
        "terminated",
    ),
    Mutant(
        "a stream that opens during a deletion sends no Terminated",
        "peering/_hub.py",
        "        if self.leaving:",
        "        if False:",
        _ENDINGS,
        "being_deleted",
    ),
    Mutant(
        "a dialing peering is gone before the other side knows",
        "peering/_stream_controller.py",
        "elif not (entry.notified or entry.terminated):",
        "elif False:",
        _CUT_OFF,
        "that_returns",
    ),
    Mutant(
        "a deletion is confirmed before it is stored",
        "peering/_stream_service.py",
        "await self._store_terminated(entry)",
        "pass",
        _CUT_OFF,
        "confirmed",
    ),
    Mutant(
        "a deletion of a peering waits forever",
        "peering/_stream_controller.py",
        "if late and not",
        "if False and not",
        _CUT_OFF,
        "bound",
    ),
    Mutant(
        "a rollback amid a snapshot goes unnoticed",
        "peering/_receiver.py",
        "resume_after=self._resume_after(),",
        "resume_after=self.position,",
        "peering/test_links.py",
        "amid_a_snapshot",
    ),
    Mutant(
        "a peering that had no exports resumes without a snapshot",
        "peering/_exporting.py",
        "selection=after.selection or _NONE",
        "selection=after.selection",
        "peering/test_links.py",
        "first_export",
    ),
)
