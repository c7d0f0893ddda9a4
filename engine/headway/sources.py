"""Sources: turn events outside the store into reconciles."""

from headway.controller import Enqueue as Enqueue
from headway.controller import ProcessExits as ProcessExits
from headway.controller import Source as Source
from headway.controller import every as every
from headway.controller import from_channel as from_channel
from headway.controller import from_iterator as from_iterator
from headway.controller import process_exits as process_exits
