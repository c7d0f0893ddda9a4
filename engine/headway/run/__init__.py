"""Running controllers: one run after another, each from its fence to its end.

Start with `_run.py` (the course of a run). `_supervisor.py` restarts it, and `_worker.py` calls its reconciler.
"""

from headway.run._change_mapper import ChangeMapper as ChangeMapper
from headway.run._events import ControllerEvents as ControllerEvents
from headway.run._events import EventRecorder as EventRecorder
from headway.run._events import LostEvents as LostEvents
from headway.run._fence import Hold as Hold
from headway.run._fence import RunWrites as RunWrites
from headway.run._governor import Governed as Governed
from headway.run._governor import Governor as Governor
from headway.run._invalid_result import invalid_result as invalid_result
from headway.run._keys import KeyStatus as KeyStatus
from headway.run._keys import Pending as Pending
from headway.run._leading import LEASE_TTL as LEASE_TTL
from headway.run._leading import Leading as Leading
from headway.run._mapping import RunMapping as RunMapping
from headway.run._mapping_retries import Unmapped as Unmapped
from headway.run._outcomes import AT_ONCE_SECONDS as AT_ONCE_SECONDS
from headway.run._outcomes import MOST_AT_ONCE as MOST_AT_ONCE
from headway.run._owed import Owed as Owed
from headway.run._owed import add_start as add_start
from headway.run._own_writes import OwnWrite as OwnWrite
from headway.run._own_writes import OwnWrites as OwnWrites
from headway.run._ownership import RECORD_INTERVAL as RECORD_INTERVAL
from headway.run._ownership import EveryKey as EveryKey
from headway.run._ownership import Ownership as Ownership
from headway.run._ownership import PrimedRun as PrimedRun
from headway.run._priming import STALL_LIMIT as STALL_LIMIT
from headway.run._priming import Deletions as Deletions
from headway.run._priming import RunCaches as RunCaches
from headway.run._priming import deletions_since as deletions_since
from headway.run._priming import wait_primed as wait_primed
from headway.run._run import Run as Run
from headway.run._self_triggers import Fight as Fight
from headway.run._self_triggers import Fights as Fights
from headway.run._self_triggers import SelfTriggers as SelfTriggers
from headway.run._status import ControllerStatus as ControllerStatus
from headway.run._status import NotDone as NotDone
from headway.run._status import Phase as Phase
from headway.run._status import Results as Results
from headway.run._status import TypeStatus as TypeStatus
from headway.run._status import newest_revision as newest_revision
from headway.run._status import type_statuses as type_statuses
from headway.run._supervisor import Supervisor as Supervisor
from headway.run._supervisor import restart_delay as restart_delay
