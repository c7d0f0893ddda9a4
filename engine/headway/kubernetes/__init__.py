"""Controllers for the objects of a Kubernetes cluster.

The extra ``kubernetes`` installs what this package needs. Read `_kubeconfig.py` first, then `_credentials.py`,
`_http.py` and `_errors.py`: they find an API server, prove who calls it, call it, and turn what it refuses into the
errors of `headway.errors`.
"""
