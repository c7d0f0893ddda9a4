"""A model of the Kubernetes API server, in memory and in virtual time, for tests of programs without a cluster.

`ModelCluster` has the objects. A `ModelServer` serves them to the services of `headway.kubernetes`, with the answers
and refusals of a real server. `Front` is an address that moves from one server to another.
`collect_garbage` and `end_namespaces` do the work of a cluster's controllers.

Not modeled: access, admission, conversion between versions, the fields of built-in types beyond what tests of
controllers need, and lists of one set with the same item twice.
"""

from headway.testing.kubernetes._cluster import Commit as Commit
from headway.testing.kubernetes._cluster import ModelCluster as ModelCluster
from headway.testing.kubernetes._cluster import Name as Name
from headway.testing.kubernetes._cluster import Options as Options
from headway.testing.kubernetes._cluster import Target as Target
from headway.testing.kubernetes._controllers import collect_garbage as collect_garbage
from headway.testing.kubernetes._controllers import end_namespaces as end_namespaces
from headway.testing.kubernetes._controllers import has_work as has_work
from headway.testing.kubernetes._fields import copied as copied
from headway.testing.kubernetes._kinds import Kind as Kind
from headway.testing.kubernetes._server import Front as Front
from headway.testing.kubernetes._server import ModelServer as ModelServer
