"""The command line: serve an app, and work with the resources of any server.

Every command is a thin layer over the client and manifests. It doesn't need the Python classes of a server's types,
since the server describes them. Start reading at `_main.py`, which lists the commands, then `_connection.py`.
"""

from headway.cli._main import main as main
