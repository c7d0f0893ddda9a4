"""The store in an etcd cluster, for several engines at once. It is durable while a majority of the members lives.

Read `_backend.py` first, then `layout` (keys, transactions, and the mirror that one watch keeps).
"""

from headway.storage.etcd._address import EtcdAddress as EtcdAddress
from headway.storage.etcd._address import etcd_address as etcd_address
from headway.storage.etcd._backend import EtcdBackend as EtcdBackend
from headway.storage.etcd._client import EtcdClient as EtcdClient
from headway.storage.etcd._client import open_client as open_client
from headway.storage.etcd._founding import is_founded as is_founded
from headway.storage.etcd.layout import etcd_revision as etcd_revision
