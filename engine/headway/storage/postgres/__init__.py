"""The store in PostgreSQL.

Importing it raises DeclarationError if the extra ``postgres`` is not installed.
"""

from headway.errors import DeclarationError

try:
    import psycopg as psycopg
except ImportError as error:
    # It is also raised by a psycopg that finds no libpq.
    why = " ".join(str(error).split())
    raise DeclarationError(f"a store in PostgreSQL needs psycopg: pip install 'headway[postgres]' ({why})") from error

from headway.storage.postgres._address import PostgresAddress as PostgresAddress
from headway.storage.postgres._address import postgres_address as postgres_address
from headway.storage.postgres._backend import PostgresBackend as PostgresBackend
from headway.storage.postgres._schema import script as script
from headway.storage.postgres._session import store_is_there as store_is_there
