"""Controllers that every engine runs, written as any program's are: on the public face alone.

Open `_reaper.py` first: what an owner leaves behind is deleted.
"""

from headway.builtin._app import NAME as NAME
from headway.builtin._app import builtin_app as builtin_app
