"""Manifests: convert documents in YAML, JSON or HCL to resources and back, and report the problems with their places.

    type: staff.v1.Team
    name: core
    data:
      members: [ada, grace]

``load`` returns all resources of a text, or raises one ManifestError with all problems, 100 of a text at most.

Loading never stores or sends anything, never guesses an ambiguous type, never converts a value to another kind (an
unquoted ``1.10`` is a number, not text), and never creates an object from a tag.

Start reading at `_document.py`, which defines the fields of a document. `_payload.py` reads the fields under ``data``.
The package `documents` parses the texts.
"""

from headway.errors import ManifestError as ManifestError
from headway.errors import Problem as Problem
from headway.manifest._content import Content as Content
from headway.manifest._content import read_changes as read_changes
from headway.manifest._content import read_content as read_content
from headway.manifest._content import read_payload as read_payload
from headway.manifest._document import Document as Document
from headway.manifest._document import documents as documents
from headway.manifest._document import documents_of_file as documents_of_file
from headway.manifest._document import load as load
from headway.manifest._document import load_file as load_file
from headway.manifest._dump import as_object as as_object
from headway.manifest._dump import as_yaml as as_yaml
from headway.manifest._dump import dump as dump
from headway.manifest._dump import dump_all as dump_all
from headway.manifest._dump import object_steps as object_steps
from headway.manifest._fields import Element as Element
from headway.manifest._fields import Field as Field
from headway.manifest._fields import enum_names as enum_names
from headway.manifest._fields import fields_of as fields_of
from headway.manifest._scalars import RANGES as RANGES
