"""The store in one SQLite file: durable without a server, for one process at a time.

Read `_backend.py` first, then `_writer.py` (group commit) and `_requests.py` (the change that a caller requests).
"""

from headway.storage.sqlite._backend import SqliteBackend as SqliteBackend
from headway.storage.sqlite._backend import open_sqlite as open_sqlite
from headway.storage.sqlite._lock import FileLock as FileLock
from headway.storage.sqlite._url import parse_url as parse_url
