"""Controllers for the objects of a Kubernetes cluster: their types, `open_cluster`, and what only Kubernetes can do.

The extra ``kubernetes`` installs what this package needs. `_types.py` declares types, and `_objects.py` makes resources
of objects. `_watch.py`, `_resources.py` and `_leases.py` are the services of Headway over an API server, which
`_kubeconfig.py` finds, `_credentials.py` convinces and `_http.py` calls. `_webhooks.py` is what the API server calls.
`_pauses.py` reads what an operator has labeled.
"""

from headway.kubernetes._apply import delete as delete
from headway.kubernetes._apply import scale as scale
from headway.kubernetes._apply import update_status as update_status
from headway.kubernetes._crd import Scale as Scale
from headway.kubernetes._crd import yaml_of as yaml_of
from headway.kubernetes._crd_changes import diff as diff
from headway.kubernetes._documents import crds as crds
from headway.kubernetes._documents import rights as rights
from headway.kubernetes._manifest import Manifest as Manifest
from headway.kubernetes._manifest import manifest as manifest
from headway.kubernetes._open import open_cluster as open_cluster
from headway.kubernetes._schema import Hints as Hints
from headway.kubernetes._types import KubernetesType as KubernetesType
from headway.kubernetes._types import builtin as builtin
from headway.kubernetes._types import resource as resource
from headway.kubernetes._webhooks import open_webhooks as open_webhooks
