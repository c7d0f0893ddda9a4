"""The control plane: what each connected proxy should have, computed from its template, and what it says to that.

`proxies` returns the extension of an engine that serves proxies beside the API.

connected   the proxies that are connected to this process
rights      the caller that may be a proxy
publishing  from a template and its endpoints, certificate and roots to a snapshot
conditions  the status of a template
extension   the controller, and the extension
"""

from mesh.control.connected import Proxies as Proxies
from mesh.control.extension import proxies as proxies
