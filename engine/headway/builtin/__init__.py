"""Controllers that every engine runs, written as any program's are: on the public face alone.

Open `_reaper.py` first (what an owner leaves behind is deleted), then `_tenancy.py` (so is what is in a namespace) and
`_remover.py` (what is marked for deletion is removed once no finalizer holds it).
"""

from headway.builtin._app import NAME as NAME
from headway.builtin._app import builtin_app as builtin_app
from headway.builtin._paced import PacedChannel as PacedChannel
