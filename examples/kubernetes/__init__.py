"""An operator for Kubernetes, with a cluster to see it run on, and a proof."""
