"""The same operator by Headway, with controller-runtime and with kopf, on the same Kubernetes API server."""
