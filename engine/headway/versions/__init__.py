"""Several versions of a kind with converters between them, and the migration of stored resources.

An engine has these by an extension. Start reading at `_chain.py`, what an app declares, then `_forms.py`, which takes
the place of the service's own `Forms`.
"""

from headway.versions._chain import BadConversion, VersionChain, add_converter, chain_of, chains_in, store_as
from headway.versions._extension import versions_extension
from headway.versions._forms import Versions
from headway.versions._migrate import MIGRATION_SERVICE, Migrated, MigrationApi, MigrationService, migrate

__all__ = [
    "MIGRATION_SERVICE",
    "BadConversion",
    "Migrated",
    "MigrationApi",
    "MigrationService",
    "VersionChain",
    "Versions",
    "add_converter",
    "chain_of",
    "chains_in",
    "migrate",
    "store_as",
    "versions_extension",
]
