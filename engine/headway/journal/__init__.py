"""The journal: a bounded record, in memory and if wanted in a file, of what each controller did and why.

Nothing here affects what the engine does. `_entries.py` has the entries. `_writes.py` records writes, `_journal.py`
everything else within its limit of memory, and `_file.py` writes both to a file.
"""

from headway.journal._entries import Happened as Happened
from headway.journal._entries import Ran as Ran
from headway.journal._entries import Written as Written
from headway.journal._file import JournalFile as JournalFile
from headway.journal._journal import ControllerJournal as ControllerJournal
from headway.journal._journal import Journal as Journal
from headway.journal._journal import JournalOptions as JournalOptions
from headway.journal._writes import WriteJournal as WriteJournal
