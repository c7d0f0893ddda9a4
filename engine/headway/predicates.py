"""Predicates: select the changes of a type that trigger a controller."""

from headway.mapper import Predicate as Predicate
from headway.mapper import all_of as all_of
from headway.mapper import any_of as any_of
from headway.mapper import content_changed as content_changed
from headway.mapper import data_changed as data_changed
from headway.mapper import deletion_begun as deletion_begun
from headway.mapper import metadata_changed as metadata_changed
from headway.mapper import none_of as none_of
from headway.mapper import not_own_writes as not_own_writes
from headway.mapper import status_changed as status_changed
