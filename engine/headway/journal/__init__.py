"""The journal: a bounded record, in memory, of what each controller did and why, and the same in a file.

Nothing here affects what the engine does. `_entries.py` has the entries, `_ring.py` bounds them, `_writes.py` collects
those of writes and `_journal.py` all others, and `_file.py` writes them to a file.
"""

from headway.journal._entries import ENTRY as ENTRY
from headway.journal._entries import Entry as Entry
from headway.journal._entries import Happened as Happened
from headway.journal._entries import Ran as Ran
from headway.journal._entries import TurnedAway as TurnedAway
from headway.journal._entries import Written as Written
from headway.journal._file import JournalFile as JournalFile
from headway.journal._journal import JOURNAL_BYTES as JOURNAL_BYTES
from headway.journal._journal import ControllerJournal as ControllerJournal
from headway.journal._journal import Journal as Journal
from headway.journal._writes import WriteJournal as WriteJournal
