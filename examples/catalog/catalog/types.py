"""The types of the catalog, with the names and scopes of Consul's."""

from catalog import messages
from catalog.application import app
from catalog.checks import exports, failover, permissions, rights, services, workloads
from catalog.checks.faults import refusing
from headway import Hooks, ResourceType, Scope

# A service has its endpoints, its failover policy and the computed one under its own name.
SERVICE = app.type(
    "catalog",
    "v2beta1",
    "Service",
    messages.Service,
    hooks=Hooks(mutate=services.fill_in_service, validate=refusing(services.service), needs=rights.service),
)
WORKLOAD = app.type(
    "catalog",
    "v2beta1",
    "Workload",
    messages.Workload,
    hooks=Hooks(validate=refusing(workloads.workload), needs=rights.workload),
)
NODE = app.type(
    "catalog", "v2beta1", "Node", messages.Node, scope=Scope.PARTITION, hooks=Hooks(validate=refusing(workloads.node))
)
HEALTH_STATUS = app.type(
    "catalog",
    "v2beta1",
    "HealthStatus",
    messages.HealthStatus,
    hooks=Hooks(validate=refusing(workloads.health_status), needs=rights.health),
)
NODE_HEALTH_STATUS = app.type(
    "catalog",
    "v2beta1",
    "NodeHealthStatus",
    messages.NodeHealthStatus,
    scope=Scope.PARTITION,
    hooks=Hooks(validate=refusing(workloads.node_health_status), needs=rights.health),
)
SERVICE_ENDPOINTS = app.type(
    "catalog",
    "v2beta1",
    "ServiceEndpoints",
    messages.ServiceEndpoints,
    hooks=Hooks(mutate=services.fill_in_endpoints, validate=refusing(services.endpoints)),
    max_fields=1_000_000,  # some 30 for each workload of the service
)
FAILOVER_POLICY = app.type(
    "catalog",
    "v2beta1",
    "FailoverPolicy",
    messages.FailoverPolicy,
    hooks=Hooks(mutate=failover.fill_in, validate=refusing(failover.policy), needs=rights.failover),
)
COMPUTED_FAILOVER_POLICY = app.type(
    "catalog",
    "v2beta1",
    "ComputedFailoverPolicy",
    messages.ComputedFailoverPolicy,
    hooks=Hooks(validate=refusing(failover.computed), needs=rights.failover),
)

# An identity has its computed permissions under its own name.
WORKLOAD_IDENTITY = app.type("auth", "v2beta1", "WorkloadIdentity", messages.WorkloadIdentity)
TRAFFIC_PERMISSIONS = app.type(
    "auth",
    "v2beta1",
    "TrafficPermissions",
    messages.TrafficPermissions,
    hooks=Hooks(
        mutate=permissions.fill_in, validate=refusing(permissions.of_identity), needs=rights.traffic_permissions
    ),
)
NAMESPACE_TRAFFIC_PERMISSIONS = app.type(
    "auth",
    "v2beta1",
    "NamespaceTrafficPermissions",
    messages.NamespaceTrafficPermissions,
    hooks=Hooks(mutate=permissions.fill_in, validate=refusing(permissions.of_tenancy)),
)
PARTITION_TRAFFIC_PERMISSIONS = app.type(
    "auth",
    "v2beta1",
    "PartitionTrafficPermissions",
    messages.PartitionTrafficPermissions,
    scope=Scope.PARTITION,
    hooks=Hooks(mutate=permissions.fill_in, validate=refusing(permissions.of_tenancy)),
)
COMPUTED_TRAFFIC_PERMISSIONS = app.type(
    "auth",
    "v2beta1",
    "ComputedTrafficPermissions",
    messages.ComputedTrafficPermissions,
    hooks=Hooks(validate=refusing(permissions.computed)),
)

EXPORTED_SERVICES = app.type(
    "multicluster",
    "v2",
    "ExportedServices",
    messages.ExportedServices,
    hooks=Hooks(validate=refusing(exports.of_services), needs=rights.exported_services),
)
NAMESPACE_EXPORTED_SERVICES = app.type(
    "multicluster",
    "v2",
    "NamespaceExportedServices",
    messages.NamespaceExportedServices,
    hooks=Hooks(validate=refusing(exports.of_tenancy)),
)
PARTITION_EXPORTED_SERVICES = app.type(
    "multicluster",
    "v2",
    "PartitionExportedServices",
    messages.PartitionExportedServices,
    scope=Scope.PARTITION,
    hooks=Hooks(validate=refusing(exports.of_tenancy)),
)
# A partition has one, named `global`.
COMPUTED_EXPORTED_SERVICES = app.type(
    "multicluster",
    "v2",
    "ComputedExportedServices",
    messages.ComputedExportedServices,
    scope=Scope.PARTITION,
    hooks=Hooks(validate=refusing(exports.computed)),
)

# As in Consul, no server serves these. A program may use them for resources of its own, such as a file of checks.
HEALTH_CHECKS = ResourceType(
    "catalog", "v2beta1", "HealthChecks", messages.HealthChecks, hooks=Hooks(validate=refusing(services.health_checks))
)
VIRTUAL_IPS = ResourceType(
    "catalog", "v2beta1", "VirtualIPs", messages.VirtualIPs, hooks=Hooks(validate=refusing(services.virtual_ips))
)
