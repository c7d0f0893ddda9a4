"""An xDS server for Envoy and gRPC clients.

`Resource` encodes a message of `mesh.xds.messages`. A `Snapshot` holds what one proxy should have. `AdsService` sends
only what has changed, in an order that fails no request. `bootstrap` returns the file with which an Envoy starts.

Start reading at `protocol`, the state of one stream without I/O.
"""

from mesh.xds.bootstrap import bootstrap as bootstrap
from mesh.xds.protocol import DeltaStream as DeltaStream
from mesh.xds.protocol import Rejection as Rejection
from mesh.xds.protocol import Response as Response
from mesh.xds.protocol import WholeStream as WholeStream
from mesh.xds.resources import Kind as Kind
from mesh.xds.resources import Resource as Resource
from mesh.xds.resources import Snapshot as Snapshot
from mesh.xds.resources import packed as packed
from mesh.xds.service import Admission as Admission
from mesh.xds.service import AdsService as AdsService
from mesh.xds.service import Answers as Answers
from mesh.xds.service import Authenticate as Authenticate
from mesh.xds.service import Feedback as Feedback
from mesh.xds.service import Limits as Limits
from mesh.xds.service import Publish as Publish
from mesh.xds.service import Snapshots as Snapshots
from mesh.xds.service import Source as Source
