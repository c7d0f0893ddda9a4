"""The controllers of the app. Importing a module adds its controller, so each has a line here."""

from mesh.controllers import explicit_destinations as explicit_destinations
from mesh.controllers import proxy_configuration as proxy_configuration
from mesh.controllers import routes as routes
from mesh.controllers import sidecar_proxy as sidecar_proxy
