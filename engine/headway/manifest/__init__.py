"""Manifests: documents in YAML, JSON or HCL to resources and back, with the place of everything that is wrong.

    type: staff.v1.Team
    name: core
    data:
      members: [ada, grace]

A text is read whole: ``load`` gives all of its resources, or one ManifestError with all of its problems.

What never happens here: nothing is stored or sent, no type is guessed where two could be meant, no value is
turned into one of another kind (an unquoted ``1.10`` is no text), and no tag makes an object.

Open `_document.py` first: what a document may say. `_payload.py` is what goes on under ``data``; `_nodes.py` is
what every format is read into, by `_yaml.py`, `_json.py` and `_hcl.py`.
"""

from headway.errors import ManifestError as ManifestError
from headway.errors import Problem as Problem
from headway.manifest._dump import dump as dump
from headway.manifest._dump import dump_all as dump_all
from headway.manifest._load import load as load
from headway.manifest._load import load_file as load_file
from headway.manifest._objects import as_object as as_object
