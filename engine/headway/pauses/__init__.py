"""Pauses: an operator stops a controller in every process, and lets it go on.

The pause of a controller is a resource of the store (`PAUSE`). `_pauses.py` closes the controller's gate while it
exists.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.pauses._client import pause_controller as pause_controller
from headway.pauses._client import resume_controller as resume_controller
from headway.pauses._reported import ControllerPaused as ControllerPaused
from headway.pauses._reported import Paused as Paused
from headway.pauses._reported import Resumed as Resumed
from headway.pauses._type import PAUSE as PAUSE
from headway.pauses._type import controller_problem as controller_problem
from headway.pauses._type import pause_name as pause_name

if TYPE_CHECKING:
    from headway.pauses._alone import PausesAlone as PausesAlone
    from headway.pauses._alone import is_of_pauses as is_of_pauses
    from headway.pauses._pauses import pauses_extension as pauses_extension

# Imported on first use: only engines and workers need it.
__getattr__ = imported_later(__name__, {"_alone": "PausesAlone is_of_pauses", "_pauses": "pauses_extension"})
