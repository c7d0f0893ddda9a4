"""Controllers that every engine runs, written only with the public API.

Start with `_reaper.py` (deletes what a deleted owner owned), then read `_tenancy.py` (deletes the content of a
namespace or partition) and `_remover.py` (removes resources marked for deletion that have no finalizers left).
"""

from headway.builtin._app import NAME as NAME
from headway.builtin._app import builtin_app as builtin_app
from headway.builtin._paced import PacedChannel as PacedChannel
