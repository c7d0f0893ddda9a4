"""Steps: effects outside the store whose intention and result are recorded, so that none is repeated without a word.

`Runtime.step` and `Runtime.once` make them. `_record.py` has what a status of the resource keeps of them.
"""

from headway.steps._record import KEPT_INPUTS as KEPT_INPUTS
from headway.steps._record import LONGEST_RESULT as LONGEST_RESULT
from headway.steps._record import MOST_STEPS as MOST_STEPS
from headway.steps._record import SUFFIX as SUFFIX
from headway.steps._record import Inputs as Inputs
from headway.steps._reported import StepUncertain as StepUncertain
from headway.steps._step import Step as Step
