"""The choice of what to try: plans of faults, their order, and the simplest plan under which a program fails.

Pure: nothing is run here, and random choices come from a seed.

Read `_plans.py` first. `_further_plans.py` adds plans of further kinds, and `_durations.py` says how long their faults
last.
"""

from headway.testing.simulation.plans._durations import checked_durations as checked_durations
from headway.testing.simulation.plans._durations import lasting as lasting
from headway.testing.simulation.plans._further_plans import after_a_crash as after_a_crash
from headway.testing.simulation.plans._further_plans import calls_before_a_change as calls_before_a_change
from headway.testing.simulation.plans._further_plans import changes_in_ticks as changes_in_ticks
from headway.testing.simulation.plans._further_plans import changes_of_several as changes_of_several
from headway.testing.simulation.plans._further_plans import does_by_the_clock as does_by_the_clock
from headway.testing.simulation.plans._further_plans import peer_faults as peer_faults
from headway.testing.simulation.plans._further_plans import slow_calls as slow_calls
from headway.testing.simulation.plans._further_plans import ticks_during_calls as ticks_during_calls
from headway.testing.simulation.plans._order import in_fair_turns as in_fair_turns
from headway.testing.simulation.plans._plans import LeftOut as LeftOut
from headway.testing.simulation.plans._plans import at_another_pace as at_another_pace
from headway.testing.simulation.plans._plans import handovers as handovers
from headway.testing.simulation.plans._plans import interims as interims
from headway.testing.simulation.plans._plans import merges as merges
from headway.testing.simulation.plans._plans import pairs as pairs
from headway.testing.simulation.plans._plans import single_faults as single_faults
from headway.testing.simulation.plans._shrink import MOST_RUNS as MOST_RUNS
from headway.testing.simulation.plans._shrink import Judge as Judge
from headway.testing.simulation.plans._shrink import Refutation as Refutation
from headway.testing.simulation.plans._shrink import simplest as simplest
