"""Stores, their history, their fences and their leases.

Nothing here checks permissions. Read `_backend.py` first (the promises), then `_log.py` and `_memory.py`. `sqlite/` and
`etcd/` have the durable stores, and `upkeep/` what is done to whole stores.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.storage._abilities import Asked as Asked
from headway.storage._abilities import ChecksItself as ChecksItself
from headway.storage._abilities import FiltersMetadata as FiltersMetadata
from headway.storage._abilities import ListsFences as ListsFences
from headway.storage._abilities import OptimisticReads as OptimisticReads
from headway.storage._abilities import Read as Read
from headway.storage._abilities import ReadsAtOnce as ReadsAtOnce
from headway.storage._abilities import ReadsCopies as ReadsCopies
from headway.storage._abilities import Shared as Shared
from headway.storage._abilities import SkipsUnrelated as SkipsUnrelated
from headway.storage._abilities import TakesRules as TakesRules
from headway.storage._abilities import filters_metadata as filters_metadata
from headway.storage._abilities import is_shared as is_shared
from headway.storage._abilities import last_leases as last_leases
from headway.storage._abilities import list_part as list_part
from headway.storage._abilities import owned_parts as owned_parts
from headway.storage._abilities import reads_copies as reads_copies
from headway.storage._abilities import rules_of as rules_of
from headway.storage._backend import Backend as Backend
from headway.storage._backend import ListsResources as ListsResources
from headway.storage._backend import Watch as Watch
from headway.storage._fences import first_checkpoint as first_checkpoint
from headway.storage._fences import next_term as next_term
from headway.storage._filter import ending_commits as ending_commits
from headway.storage._lease_table import LeaseTable as LeaseTable
from headway.storage._leases import Acquired as Acquired
from headway.storage._leases import CurrentLease as CurrentLease
from headway.storage._leases import Lease as Lease
from headway.storage._leases import TermEnded as TermEnded
from headway.storage._leases import lease_of as lease_of
from headway.storage._leases import scope_of as scope_of
from headway.storage._log import CommitLog as CommitLog
from headway.storage._log import Cursor as Cursor
from headway.storage._memory import MemoryBackend as MemoryBackend
from headway.storage._open import UNFINISHED_KIND as UNFINISHED_KIND
from headway.storage._open import StoreProblem as StoreProblem
from headway.storage._open import find_problem as find_problem
from headway.storage._open import mark_unfinished as mark_unfinished
from headway.storage._open import names_shared as names_shared
from headway.storage._open import open_store as open_store
from headway.storage._open import refuse_unfinished as refuse_unfinished
from headway.storage._open import store_exists as store_exists
from headway.storage._operations import MOST_OPERATIONS as MOST_OPERATIONS
from headway.storage._operations import Fence as Fence
from headway.storage._operations import FenceLowered as FenceLowered
from headway.storage._operations import Operation as Operation
from headway.storage._operations import Put as Put
from headway.storage._operations import Raised as Raised
from headway.storage._operations import Remove as Remove
from headway.storage._operations import Require as Require
from headway.storage._operations import RequireOwnsNothing as RequireOwnsNothing
from headway.storage._operations import StillOwns as StillOwns
from headway.storage._operations import StorageError as StorageError
from headway.storage._operations import StoreMismatch as StoreMismatch
from headway.storage._operations import UnknownTerm as UnknownTerm
from headway.storage._operations import VersionConflict as VersionConflict
from headway.storage._operations import Within as Within
from headway.storage._operations import WrongUid as WrongUid
from headway.storage._operations import refuse_repeated_keys as refuse_repeated_keys
from headway.storage._reads import SNAPSHOT_CHUNK as SNAPSHOT_CHUNK
from headway.storage._reads import CutSnapshot as CutSnapshot
from headway.storage._reads import ListedSnapshot as ListedSnapshot
from headway.storage._reads import Snapshot as Snapshot
from headway.storage._reads import list_within as list_within
from headway.storage._reads import read_snapshot as read_snapshot
from headway.storage._resuming import check_resumable as check_resumable
from headway.storage._rules import Change as Change
from headway.storage._rules import Claim as Claim
from headway.storage._rules import CommitRule as CommitRule
from headway.storage._rules import Rules as Rules
from headway.storage._rules import Stored as Stored
from headway.storage._rules import TableContent as TableContent
from headway.storage._rules import stored_size as stored_size
from headway.storage._scoped import open_watch as open_watch
from headway.storage._sorted_keys import Cut as Cut
from headway.storage._sorted_keys import SortedKeys as SortedKeys
from headway.storage._tables import Effect as Effect
from headway.storage._tables import ResourceTables as ResourceTables
from headway.storage._tables import decide as decide
from headway.storage._tables import version_of as version_of
from headway.storage._traces import COMMITTING as COMMITTING
from headway.storage._traces import LONGEST_TRACESTATE as LONGEST_TRACESTATE
from headway.storage._traces import Committing as Committing
from headway.storage._traces import CommitTrace as CommitTrace
from headway.storage._traces import CommitTraces as CommitTraces
from headway.storage._traces import KeepsTraces as KeepsTraces
from headway.storage._traces import sampled_trace as sampled_trace
from headway.storage._watch import LogWatch as LogWatch
from headway.storage._watch import Pulse as Pulse
from headway.storage.upkeep._schema_mark import REPLACED as REPLACED
from headway.storage.upkeep._schema_mark import SCHEMA_KIND as SCHEMA_KIND
from headway.storage.upkeep._schema_mark import without_mark as without_mark

if TYPE_CHECKING:
    from headway.storage.etcd import EtcdAddress as EtcdAddress
    from headway.storage.etcd import EtcdBackend as EtcdBackend
    from headway.storage.etcd import etcd_address as etcd_address
    from headway.storage.postgres import PostgresAddress as PostgresAddress
    from headway.storage.postgres import PostgresBackend as PostgresBackend
    from headway.storage.postgres import postgres_address as postgres_address
    from headway.storage.sqlite import SqliteBackend as SqliteBackend
    from headway.storage.sqlite import open_sqlite as open_sqlite
    from headway.storage.sqlite._backup import BackedUp as BackedUp
    from headway.storage.sqlite._backup import Restored as Restored
    from headway.storage.sqlite._check import Finding as Finding
    from headway.storage.sqlite._inspect import OnlyReadable as OnlyReadable
    from headway.storage.upkeep._copy import Copied as Copied
    from headway.storage.upkeep._copy import copy_store as copy_store
    from headway.storage.upkeep._maintain import backup_store as backup_store
    from headway.storage.upkeep._maintain import check_store as check_store
    from headway.storage.upkeep._maintain import file_lists as file_lists
    from headway.storage.upkeep._maintain import restore_store as restore_store
    from headway.storage.upkeep._maintain import verify_file as verify_file
    from headway.storage.upkeep._progress import Progress as Progress
    from headway.storage.upkeep._verify import Verified as Verified
    from headway.storage.upkeep._verify import verify_store as verify_store

# These names are imported at their first use, so that `import headway` stays fast. They need sqlite3, or asyncio, h2
# and ssl, or psycopg, or serve only to maintain stores. An engine with another store never loads them.
_LATER = {
    "etcd": "EtcdAddress EtcdBackend etcd_address",
    "postgres": "PostgresAddress PostgresBackend postgres_address",
    "sqlite": "SqliteBackend open_sqlite",
    "sqlite._backup": "BackedUp Restored",
    "sqlite._check": "Finding",
    "sqlite._inspect": "OnlyReadable",
    "upkeep._copy": "Copied copy_store",
    "upkeep._maintain": "backup_store check_store file_lists restore_store verify_file",
    "upkeep._progress": "Progress",
    "upkeep._verify": "Verified verify_store",
}

__getattr__ = imported_later(__name__, _LATER)
