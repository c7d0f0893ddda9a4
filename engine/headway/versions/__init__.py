"""Several versions of a kind with converters between them, and the comparison of the schemas of types.

An engine has these by an extension. Start reading at `_chain.py`, what an app declares, then `_forms.py`, which takes
the place of the service's own `Forms`. `_schema.py` compares two schemas: of a program with those that are recorded in
a store (`_records.py`), or with those of another program (`_compared.py`).
"""

from headway.versions._chain import BadConversion, VersionChain, add_converter, chain_of, chains_in, store_as
from headway.versions._compared import Comparison
from headway.versions._differences import differences
from headway.versions._extension import versions_extension
from headway.versions._forms import Versions
from headway.versions._merge import different_fields, merges
from headway.versions._migrate import MIGRATION_SERVICE, Migrated, MigrationApi, MigrationService, migrate
from headway.versions._records import plan_schemas, read_schemas, record_schemas
from headway.versions._schema import MOST_PROBLEMS, Schema, compare_schemas, schema_digest
from headway.versions._schema_merge import merge_schemas

__all__ = [
    "MIGRATION_SERVICE",
    "MOST_PROBLEMS",
    "BadConversion",
    "Comparison",
    "Migrated",
    "MigrationApi",
    "MigrationService",
    "Schema",
    "VersionChain",
    "Versions",
    "add_converter",
    "chain_of",
    "chains_in",
    "compare_schemas",
    "differences",
    "different_fields",
    "merge_schemas",
    "merges",
    "migrate",
    "plan_schemas",
    "read_schemas",
    "record_schemas",
    "schema_digest",
    "store_as",
    "versions_extension",
]
