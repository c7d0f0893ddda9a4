"""The types of the catalog, with the names and scopes of Consul's."""

from catalog import messages
from catalog.application import app
from headway import ResourceType, Scope

# A Service has its endpoints, its failover policy and the computed one under its own name.
SERVICE = app.type("catalog", "v2beta1", "Service", messages.Service)
WORKLOAD = app.type("catalog", "v2beta1", "Workload", messages.Workload)
NODE = app.type("catalog", "v2beta1", "Node", messages.Node, scope=Scope.PARTITION)
HEALTH_STATUS = app.type("catalog", "v2beta1", "HealthStatus", messages.HealthStatus)
NODE_HEALTH_STATUS = app.type(
    "catalog", "v2beta1", "NodeHealthStatus", messages.NodeHealthStatus, scope=Scope.PARTITION
)
SERVICE_ENDPOINTS = app.type("catalog", "v2beta1", "ServiceEndpoints", messages.ServiceEndpoints)
FAILOVER_POLICY = app.type("catalog", "v2beta1", "FailoverPolicy", messages.FailoverPolicy)
COMPUTED_FAILOVER_POLICY = app.type("catalog", "v2beta1", "ComputedFailoverPolicy", messages.ComputedFailoverPolicy)

# A WorkloadIdentity has its computed permissions under its own name.
WORKLOAD_IDENTITY = app.type("auth", "v2beta1", "WorkloadIdentity", messages.WorkloadIdentity)
TRAFFIC_PERMISSIONS = app.type("auth", "v2beta1", "TrafficPermissions", messages.TrafficPermissions)
NAMESPACE_TRAFFIC_PERMISSIONS = app.type(
    "auth", "v2beta1", "NamespaceTrafficPermissions", messages.NamespaceTrafficPermissions
)
PARTITION_TRAFFIC_PERMISSIONS = app.type(
    "auth", "v2beta1", "PartitionTrafficPermissions", messages.PartitionTrafficPermissions, scope=Scope.PARTITION
)
COMPUTED_TRAFFIC_PERMISSIONS = app.type(
    "auth", "v2beta1", "ComputedTrafficPermissions", messages.ComputedTrafficPermissions
)

EXPORTED_SERVICES = app.type("multicluster", "v2", "ExportedServices", messages.ExportedServices)
NAMESPACE_EXPORTED_SERVICES = app.type(
    "multicluster", "v2", "NamespaceExportedServices", messages.NamespaceExportedServices
)
PARTITION_EXPORTED_SERVICES = app.type(
    "multicluster", "v2", "PartitionExportedServices", messages.PartitionExportedServices, scope=Scope.PARTITION
)
# A partition has one, with the name `global`.
COMPUTED_EXPORTED_SERVICES = app.type(
    "multicluster", "v2", "ComputedExportedServices", messages.ComputedExportedServices, scope=Scope.PARTITION
)

# As in Consul, no server serves these. A program may use them for resources of its own, such as a file of checks.
HEALTH_CHECKS = ResourceType("catalog", "v2beta1", "HealthChecks", messages.HealthChecks)
VIRTUAL_IPS = ResourceType("catalog", "v2beta1", "VirtualIPs", messages.VirtualIPs)
