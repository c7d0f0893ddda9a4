"""Indexes of a controller's cache: find a type's resources by a value."""

from headway.cache import Index as Index
from headway.cache import by as by
from headway.cache import by_bound_references as by_bound_references
from headway.cache import by_many as by_many
from headway.cache import by_metadata as by_metadata
from headway.cache import by_owner as by_owner
from headway.cache import by_reference as by_reference
from headway.cache import by_references as by_references
