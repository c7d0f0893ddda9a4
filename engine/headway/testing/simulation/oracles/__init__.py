"""The checks of runs: mistakes that one run shows by itself, and differences from the runs without faults. Pure.

Read `_oracles.py` first. A module imports only those before it:

    _shown                       values as texts
    _oracles                     the result of a run, and the mistakes that it shows by itself
    _always                      what must hold at all times
    _uncertain                   steps whose outcome was unknown, and whose block has ignored that
    _blind, _steady              changes that a write has destroyed; reconciles that write something else for no reason
    _peer_oracles                the rules of peerings
    _times                       the times in results, which differ from run to run; things made once for each time
    _allowed                     the differences between two runs that are allowed
    _compared                    the differences that are found, also in the world outside
    _made_again                  things outside that were made again
    _agreeing, _replaced         random values that are the same in several places; those that were replaced
"""

from headway.testing.simulation.oracles._agreeing import disagreements as disagreements
from headway.testing.simulation.oracles._allowed import OUTSIDE as OUTSIDE
from headway.testing.simulation.oracles._allowed import Allowed as Allowed
from headway.testing.simulation.oracles._allowed import check_declared as check_declared
from headway.testing.simulation.oracles._allowed import check_names as check_names
from headway.testing.simulation.oracles._always import Always as Always
from headway.testing.simulation.oracles._always import Stored as Stored
from headway.testing.simulation.oracles._always import always_held as always_held
from headway.testing.simulation.oracles._always import check_answer as check_answer
from headway.testing.simulation.oracles._always import name_of as name_of
from headway.testing.simulation.oracles._always import shown_as as shown_as
from headway.testing.simulation.oracles._always import type_of as type_of
from headway.testing.simulation.oracles._always import viewed as viewed
from headway.testing.simulation.oracles._blind import Overwrite as Overwrite
from headway.testing.simulation.oracles._blind import overwrites as overwrites
from headway.testing.simulation.oracles._compared import Difference as Difference
from headway.testing.simulation.oracles._compared import compared as compared
from headway.testing.simulation.oracles._compared import differences as differences
from headway.testing.simulation.oracles._compared import differing as differing
from headway.testing.simulation.oracles._compared import has_more_outside as has_more_outside
from headway.testing.simulation.oracles._compared import random_parts as random_parts
from headway.testing.simulation.oracles._made_again import made_again as made_again
from headway.testing.simulation.oracles._made_again import things_in as things_in
from headway.testing.simulation.oracles._oracles import CURRENT as CURRENT
from headway.testing.simulation.oracles._oracles import OUTDATED as OUTDATED
from headway.testing.simulation.oracles._oracles import ROLLED_BACK as ROLLED_BACK
from headway.testing.simulation.oracles._oracles import Contents as Contents
from headway.testing.simulation.oracles._oracles import Finding as Finding
from headway.testing.simulation.oracles._oracles import Message as Message
from headway.testing.simulation.oracles._oracles import Result as Result
from headway.testing.simulation.oracles._oracles import Scheduled as Scheduled
from headway.testing.simulation.oracles._oracles import contents as contents
from headway.testing.simulation.oracles._oracles import counted as counted
from headway.testing.simulation.oracles._oracles import described as described
from headway.testing.simulation.oracles._oracles import fights as fights
from headway.testing.simulation.oracles._oracles import late_writes as late_writes
from headway.testing.simulation.oracles._oracles import left_in_the_queue as left_in_the_queue
from headway.testing.simulation.oracles._oracles import orphans as orphans
from headway.testing.simulation.oracles._oracles import reads_rolled_back as reads_rolled_back
from headway.testing.simulation.oracles._oracles import stuck_deletions as stuck_deletions
from headway.testing.simulation.oracles._oracles import twice_at_once as twice_at_once
from headway.testing.simulation.oracles._oracles import two_writers as two_writers
from headway.testing.simulation.oracles._peer_oracles import HEADWAYS_OWN as HEADWAYS_OWN
from headway.testing.simulation.oracles._peer_oracles import ExportRule as ExportRule
from headway.testing.simulation.oracles._peer_oracles import Feed as Feed
from headway.testing.simulation.oracles._peer_oracles import PeerWatch as PeerWatch
from headway.testing.simulation.oracles._peer_oracles import difference as difference
from headway.testing.simulation.oracles._peer_oracles import is_of_peering as is_of_peering
from headway.testing.simulation.oracles._replaced import all_replaced as all_replaced
from headway.testing.simulation.oracles._replaced import replaced as replaced
from headway.testing.simulation.oracles._shown import attributes_of as attributes_of
from headway.testing.simulation.oracles._shown import shown as shown
from headway.testing.simulation.oracles._steady import unsteady as unsteady
from headway.testing.simulation.oracles._times import Aligner as Aligner
from headway.testing.simulation.oracles._times import masked as masked
from headway.testing.simulation.oracles._times import without_slots as without_slots
from headway.testing.simulation.oracles._uncertain import ignored_steps as ignored_steps
