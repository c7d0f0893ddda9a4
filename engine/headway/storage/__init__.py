"""What is true: stores, their history, their fences and their leases.

Nothing here knows who asks or whether they may. Open `_backend.py` first (the promises), then `_log.py`.
"""

from headway.storage._backend import Backend as Backend
from headway.storage._backend import Fence as Fence
from headway.storage._backend import Operation as Operation
from headway.storage._backend import Put as Put
from headway.storage._backend import Raised as Raised
from headway.storage._backend import ReadsAtOnce as ReadsAtOnce
from headway.storage._backend import Remove as Remove
from headway.storage._backend import Require as Require
from headway.storage._backend import RequireOwnsNothing as RequireOwnsNothing
from headway.storage._backend import Watch as Watch
from headway.storage._backend import Within as Within
from headway.storage._backend import read_for_commit as read_for_commit
from headway.storage._errors import FenceLowered as FenceLowered
from headway.storage._errors import LeaseEnded as LeaseEnded
from headway.storage._errors import StillOwns as StillOwns
from headway.storage._errors import StorageError as StorageError
from headway.storage._errors import StoreMismatch as StoreMismatch
from headway.storage._errors import VersionConflict as VersionConflict
from headway.storage._errors import WrongUid as WrongUid
from headway.storage._leases import Acquired as Acquired
from headway.storage._leases import HeldLease as HeldLease
from headway.storage._leases import Lease as Lease
from headway.storage._leases import lease_of as lease_of
from headway.storage._leases import scope_of as scope_of
from headway.storage._log import CommitLog as CommitLog
from headway.storage._log import Cursor as Cursor
from headway.storage._maintain import backup_store as backup_store
from headway.storage._maintain import check_store as check_store
from headway.storage._maintain import restore_store as restore_store
from headway.storage._memory import MemoryBackend as MemoryBackend
from headway.storage._open import open_store as open_store
from headway.storage._sqlite import SqliteBackend as SqliteBackend
from headway.storage._sqlite import open_sqlite as open_sqlite
from headway.storage._sqlite_backup import BackedUp as BackedUp
from headway.storage._sqlite_backup import Restored as Restored
from headway.storage._sqlite_check import Finding as Finding
