"""The store in an etcd cluster, for several engines at once. It is durable while a majority of the members lives.

Read `_backend.py` first, then `_mirror.py` (the state of the store, kept by one watch) and `_transaction.py` (commits).
"""

from headway.storage.etcd._address import EtcdAddress as EtcdAddress
from headway.storage.etcd._address import etcd_address as etcd_address
from headway.storage.etcd._backend import EtcdBackend as EtcdBackend
from headway.storage.etcd._founding import is_founded as is_founded
from headway.storage.etcd._layout import etcd_revision as etcd_revision
