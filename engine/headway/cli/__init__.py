"""The command line: serve an app, and work with the resources of any server.

Every command is a thin layer over the client and over manifests. It needs none of a server's classes: the server
says what its types look like. Open `_main.py` first, then `_connection.py`.
"""

from headway.cli._main import main as main
