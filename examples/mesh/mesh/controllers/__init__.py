"""The controllers of the app. Importing a module adds its controller, so each has a line here."""

from mesh.controllers import routes as routes
