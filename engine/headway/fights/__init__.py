"""Writers that undo each other's changes: each run finds the fights of its keys, and reports what alternates.

`Turns` finds them, and `Fights` makes the events. `run/_self_triggers.py` delays the keys.
"""

from headway.fights._fighters import Alternating as Alternating
from headway.fights._fighters import Fights as Fights
from headway.fights._turns import Fight as Fight
from headway.fights._turns import Turns as Turns
