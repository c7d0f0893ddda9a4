"""Mappers: map a changed resource to the managed resources that it affects."""

from headway.mapper import ChangeMapper as ChangeMapper
from headway.mapper import Mapper as Mapper
from headway.mapper import change as change
from headway.mapper import index as index
from headway.mapper import index_parents as index_parents
from headway.mapper import index_prefix as index_prefix
from headway.mapper import itself as itself
from headway.mapper import only_if as only_if
from headway.mapper import owned as owned
from headway.mapper import owner as owner
from headway.mapper import reference as reference
from headway.mapper import references as references
from headway.mapper import same_name as same_name
from headway.mapper import through as through
from headway.mapper import union as union
