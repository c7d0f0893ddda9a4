"""Parse texts in YAML, JSON or HCL into nodes that know their places.

    problems = Problems("web.yaml")
    documents = parse(text, "YAML", problems)      # scalars, lists and maps, each with its line and column
    problems.raise_if_any()                        # one ManifestError with the first 100 problems

Manifests and access files are read this way. This package doesn't know the fields of a document or the types of their
values. The package that uses the nodes checks both.

Parsing never creates an object from a tag, never copies the value of an alias, and limits the nesting of any text. A
format's library is imported when a text in that format is parsed.

Start reading at `_nodes.py`. `_yaml.py`, `_json.py` and `_hcl.py` each parse one format.
"""

from headway.documents._json import read_only_json as read_only_json
from headway.documents._merge import count_values as count_values
from headway.documents._merge import merged as merged
from headway.documents._merge import node_of as node_of
from headway.documents._nodes import Format as Format
from headway.documents._nodes import Mapping as Mapping
from headway.documents._nodes import Node as Node
from headway.documents._nodes import Place as Place
from headway.documents._nodes import Problems as Problems
from headway.documents._nodes import Scalar as Scalar
from headway.documents._nodes import Sequence as Sequence
from headway.documents._nodes import TooManyValues as TooManyValues
from headway.documents._nodes import Unreadable as Unreadable
from headway.documents._nodes import alone as alone
from headway.documents._nodes import below as below
from headway.documents._nodes import one_of as one_of
from headway.documents._nodes import text_scalar as text_scalar
from headway.documents._nodes import withheld as withheld
from headway.documents._texts import decode as decode
from headway.documents._texts import format_of as format_of
from headway.documents._texts import parse as parse
