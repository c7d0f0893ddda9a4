"""Pauses: an operator stops a controller in every process, and lets it go on.

The pause of a controller is a resource of the store (`PAUSE`). `_pauses.py` closes the controller's gate while it
exists.
"""

from headway.pauses._client import pause_controller as pause_controller
from headway.pauses._client import resume_controller as resume_controller
from headway.pauses._pauses import pauses_extension as pauses_extension
from headway.pauses._reported import ControllerPaused as ControllerPaused
from headway.pauses._reported import Paused as Paused
from headway.pauses._reported import Resumed as Resumed
