"""The store in an etcd cluster: for several engines at once, and durable while a majority of the members lives.

Open `_backend.py` first, then `_mirror.py` (what is there, as one watch says it) and `_transaction.py` (what a commit
is).
"""

from headway.storage._etcd._address import EtcdAddress as EtcdAddress
from headway.storage._etcd._address import etcd_address as etcd_address
from headway.storage._etcd._backend import EtcdBackend as EtcdBackend
from headway.storage._etcd._founding import is_founded as is_founded
