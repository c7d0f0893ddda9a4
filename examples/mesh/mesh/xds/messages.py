"""The messages of xDS and of Envoy's configuration that this package uses, under one name each."""

from mesh.xds.generated.envoy.config.cluster.v3 import CircuitBreakers as CircuitBreakers
from mesh.xds.generated.envoy.config.cluster.v3 import CircuitBreakersThresholds as CircuitBreakersThresholds
from mesh.xds.generated.envoy.config.cluster.v3 import Cluster as Cluster
from mesh.xds.generated.envoy.config.cluster.v3 import ClusterCommonLbConfig as ClusterCommonLbConfig
from mesh.xds.generated.envoy.config.cluster.v3 import ClusterDiscoveryType as ClusterDiscoveryType
from mesh.xds.generated.envoy.config.cluster.v3 import ClusterEdsClusterConfig as ClusterEdsClusterConfig
from mesh.xds.generated.envoy.config.cluster.v3 import ClusterLbPolicy as ClusterLbPolicy
from mesh.xds.generated.envoy.config.cluster.v3 import ClusterLeastRequestLbConfig as ClusterLeastRequestLbConfig
from mesh.xds.generated.envoy.config.cluster.v3 import ClusterRingHashLbConfig as ClusterRingHashLbConfig
from mesh.xds.generated.envoy.config.cluster.v3 import ClusterTransportSocketMatch as ClusterTransportSocketMatch
from mesh.xds.generated.envoy.config.cluster.v3 import OutlierDetection as OutlierDetection
from mesh.xds.generated.envoy.config.core.v3 import Address as Address
from mesh.xds.generated.envoy.config.core.v3 import AggregatedConfigSource as AggregatedConfigSource
from mesh.xds.generated.envoy.config.core.v3 import ApiVersion as ApiVersion
from mesh.xds.generated.envoy.config.core.v3 import ConfigSource as ConfigSource
from mesh.xds.generated.envoy.config.core.v3 import DataSource as DataSource
from mesh.xds.generated.envoy.config.core.v3 import HeaderValue as HeaderValue
from mesh.xds.generated.envoy.config.core.v3 import HeaderValueOption as HeaderValueOption
from mesh.xds.generated.envoy.config.core.v3 import (
    HeaderValueOptionHeaderAppendAction as HeaderValueOptionHeaderAppendAction,
)
from mesh.xds.generated.envoy.config.core.v3 import HealthStatus as HealthStatus
from mesh.xds.generated.envoy.config.core.v3 import Http1ProtocolOptions as Http1ProtocolOptions
from mesh.xds.generated.envoy.config.core.v3 import Http2ProtocolOptions as Http2ProtocolOptions
from mesh.xds.generated.envoy.config.core.v3 import Locality as Locality
from mesh.xds.generated.envoy.config.core.v3 import Metadata as Metadata
from mesh.xds.generated.envoy.config.core.v3 import Node as Node
from mesh.xds.generated.envoy.config.core.v3 import Pipe as Pipe
from mesh.xds.generated.envoy.config.core.v3 import SocketAddress as SocketAddress
from mesh.xds.generated.envoy.config.core.v3 import TrafficDirection as TrafficDirection
from mesh.xds.generated.envoy.config.core.v3 import TransportSocket as TransportSocket
from mesh.xds.generated.envoy.config.endpoint.v3 import ClusterLoadAssignment as ClusterLoadAssignment
from mesh.xds.generated.envoy.config.endpoint.v3 import ClusterLoadAssignmentPolicy as ClusterLoadAssignmentPolicy
from mesh.xds.generated.envoy.config.endpoint.v3 import Endpoint as Endpoint
from mesh.xds.generated.envoy.config.endpoint.v3 import LbEndpoint as LbEndpoint
from mesh.xds.generated.envoy.config.endpoint.v3 import LocalityLbEndpoints as LocalityLbEndpoints
from mesh.xds.generated.envoy.config.listener.v3 import ApiListener as ApiListener
from mesh.xds.generated.envoy.config.listener.v3 import Filter as Filter
from mesh.xds.generated.envoy.config.listener.v3 import FilterChain as FilterChain
from mesh.xds.generated.envoy.config.listener.v3 import FilterChainMatch as FilterChainMatch
from mesh.xds.generated.envoy.config.listener.v3 import Listener as Listener
from mesh.xds.generated.envoy.config.listener.v3 import (
    ListenerConnectionBalanceConfig as ListenerConnectionBalanceConfig,
)
from mesh.xds.generated.envoy.config.listener.v3 import (
    ListenerConnectionBalanceConfigExactBalance as ListenerConnectionBalanceConfigExactBalance,
)
from mesh.xds.generated.envoy.config.listener.v3 import ListenerFilter as ListenerFilter
from mesh.xds.generated.envoy.config.rbac.v3 import Permission as Permission
from mesh.xds.generated.envoy.config.rbac.v3 import PermissionSet as PermissionSet
from mesh.xds.generated.envoy.config.rbac.v3 import Policy as Policy
from mesh.xds.generated.envoy.config.rbac.v3 import Principal as Principal
from mesh.xds.generated.envoy.config.rbac.v3 import PrincipalAuthenticated as PrincipalAuthenticated
from mesh.xds.generated.envoy.config.rbac.v3 import PrincipalSet as PrincipalSet
from mesh.xds.generated.envoy.config.rbac.v3 import Rbac as _RbacRules
from mesh.xds.generated.envoy.config.rbac.v3 import RbacAction as RbacAction
from mesh.xds.generated.envoy.config.route.v3 import HeaderMatcher as HeaderMatcher
from mesh.xds.generated.envoy.config.route.v3 import QueryParameterMatcher as QueryParameterMatcher
from mesh.xds.generated.envoy.config.route.v3 import RetryPolicy as RetryPolicy
from mesh.xds.generated.envoy.config.route.v3 import Route as Route
from mesh.xds.generated.envoy.config.route.v3 import RouteAction as RouteAction
from mesh.xds.generated.envoy.config.route.v3 import RouteConfiguration as RouteConfiguration
from mesh.xds.generated.envoy.config.route.v3 import RouteMatch as RouteMatch
from mesh.xds.generated.envoy.config.route.v3 import VirtualHost as VirtualHost
from mesh.xds.generated.envoy.config.route.v3 import WeightedCluster as WeightedCluster
from mesh.xds.generated.envoy.config.route.v3 import WeightedClusterClusterWeight as WeightedClusterClusterWeight
from mesh.xds.generated.envoy.extensions.filters.http.rbac.v3 import Rbac as _HttpRbac
from mesh.xds.generated.envoy.extensions.filters.http.rbac.v3 import RbacPerRoute as _HttpRbacPerRoute
from mesh.xds.generated.envoy.extensions.filters.http.router.v3 import Router as Router
from mesh.xds.generated.envoy.extensions.filters.listener.tls_inspector.v3 import TlsInspector as TlsInspector
from mesh.xds.generated.envoy.extensions.filters.network.connection_limit.v3 import ConnectionLimit as ConnectionLimit
from mesh.xds.generated.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager as HttpConnectionManager,
)
from mesh.xds.generated.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManagerCodecType as HttpConnectionManagerCodecType,
)
from mesh.xds.generated.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManagerUpgradeConfig as HttpConnectionManagerUpgradeConfig,
)
from mesh.xds.generated.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter as HttpFilter
from mesh.xds.generated.envoy.extensions.filters.network.http_connection_manager.v3 import Rds as Rds
from mesh.xds.generated.envoy.extensions.filters.network.rbac.v3 import Rbac as _NetworkRbac
from mesh.xds.generated.envoy.extensions.filters.network.tcp_proxy.v3 import TcpProxy as TcpProxy
from mesh.xds.generated.envoy.extensions.filters.network.tcp_proxy.v3 import (
    TcpProxyWeightedCluster as TcpProxyWeightedCluster,
)
from mesh.xds.generated.envoy.extensions.filters.network.tcp_proxy.v3 import (
    TcpProxyWeightedClusterClusterWeight as TcpProxyWeightedClusterClusterWeight,
)
from mesh.xds.generated.envoy.extensions.transport_sockets.tls.v3 import (
    CertificateValidationContext as CertificateValidationContext,
)
from mesh.xds.generated.envoy.extensions.transport_sockets.tls.v3 import CommonTlsContext as CommonTlsContext
from mesh.xds.generated.envoy.extensions.transport_sockets.tls.v3 import (
    CommonTlsContextCombinedCertificateValidationContext as CommonTlsContextCombinedCertificateValidationContext,
)
from mesh.xds.generated.envoy.extensions.transport_sockets.tls.v3 import DownstreamTlsContext as DownstreamTlsContext
from mesh.xds.generated.envoy.extensions.transport_sockets.tls.v3 import SdsSecretConfig as SdsSecretConfig
from mesh.xds.generated.envoy.extensions.transport_sockets.tls.v3 import Secret as Secret
from mesh.xds.generated.envoy.extensions.transport_sockets.tls.v3 import SubjectAltNameMatcher as SubjectAltNameMatcher
from mesh.xds.generated.envoy.extensions.transport_sockets.tls.v3 import (
    SubjectAltNameMatcherSanType as SubjectAltNameMatcherSanType,
)
from mesh.xds.generated.envoy.extensions.transport_sockets.tls.v3 import TlsCertificate as TlsCertificate
from mesh.xds.generated.envoy.extensions.transport_sockets.tls.v3 import UpstreamTlsContext as UpstreamTlsContext
from mesh.xds.generated.envoy.extensions.upstreams.http.v3 import HttpProtocolOptions as HttpProtocolOptions
from mesh.xds.generated.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptionsExplicitHttpConfig as HttpProtocolOptionsExplicitHttpConfig,
)
from mesh.xds.generated.envoy.service.discovery.v3 import DeltaDiscoveryRequest as DeltaDiscoveryRequest
from mesh.xds.generated.envoy.service.discovery.v3 import DeltaDiscoveryResponse as DeltaDiscoveryResponse
from mesh.xds.generated.envoy.service.discovery.v3 import DiscoveryRequest as DiscoveryRequest
from mesh.xds.generated.envoy.service.discovery.v3 import DiscoveryResponse as DiscoveryResponse
from mesh.xds.generated.envoy.service.discovery.v3 import Resource as Resource
from mesh.xds.generated.envoy.type.matcher.v3 import PathMatcher as PathMatcher
from mesh.xds.generated.envoy.type.matcher.v3 import RegexMatcher as RegexMatcher
from mesh.xds.generated.envoy.type.matcher.v3 import StringMatcher as StringMatcher
from mesh.xds.generated.envoy.type.v3 import Percent as Percent
from mesh.xds.generated.google.protobuf import Any as Any
from mesh.xds.generated.google.protobuf import Struct as Struct
from mesh.xds.generated.google.protobuf import Value as Value
from mesh.xds.generated.google.rpc import Status as Status

# Their own names say less.
HttpRbac = _HttpRbac
HttpRbacPerRoute = _HttpRbacPerRoute
NetworkRbac = _NetworkRbac
RbacRules = _RbacRules
