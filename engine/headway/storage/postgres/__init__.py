"""The store in PostgreSQL."""

from headway.storage.postgres._address import PostgresAddress as PostgresAddress
from headway.storage.postgres._address import postgres_address as postgres_address
from headway.storage.postgres._backend import PostgresBackend as PostgresBackend
from headway.storage.postgres._schema import script as script
from headway.storage.postgres._session import store_is_there as store_is_there
