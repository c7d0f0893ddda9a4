"""A store as keys and values of etcd: their form, the transactions that write them, and a mirror of them. Pure.

Read `_keys.py` first, then `_transaction.py` and `_mirror.py`.
"""

from headway.storage.etcd.layout._keys import ANCHOR as ANCHOR
from headway.storage.etcd.layout._keys import FENCE as FENCE
from headway.storage.etcd.layout._keys import LEASE as LEASE
from headway.storage.etcd.layout._keys import PLACES as PLACES
from headway.storage.etcd.layout._keys import RESOURCE as RESOURCE
from headway.storage.etcd.layout._keys import RULES as RULES
from headway.storage.etcd.layout._keys import Head as Head
from headway.storage.etcd.layout._keys import KeyRange as KeyRange
from headway.storage.etcd.layout._keys import Layout as Layout
from headway.storage.etcd.layout._keys import StoredFence as StoredFence
from headway.storage.etcd.layout._keys import StoredLease as StoredLease
from headway.storage.etcd.layout._keys import anchor_value as anchor_value
from headway.storage.etcd.layout._keys import checkpoint_from as checkpoint_from
from headway.storage.etcd.layout._keys import checkpoint_value as checkpoint_value
from headway.storage.etcd.layout._keys import etcd_revision as etcd_revision
from headway.storage.etcd.layout._keys import fence_value as fence_value
from headway.storage.etcd.layout._keys import head_from as head_from
from headway.storage.etcd.layout._keys import head_value as head_value
from headway.storage.etcd.layout._keys import lease_name_from as lease_name_from
from headway.storage.etcd.layout._keys import lease_value as lease_value
from headway.storage.etcd.layout._keys import place_of as place_of
from headway.storage.etcd.layout._keys import resource_value as resource_value
from headway.storage.etcd.layout._keys import revision_of as revision_of
from headway.storage.etcd.layout._keys import scope_from as scope_from
from headway.storage.etcd.layout._keys import timeline_from as timeline_from
from headway.storage.etcd.layout._keys import traces_from as traces_from
from headway.storage.etcd.layout._keys import traces_value as traces_value
from headway.storage.etcd.layout._mirror import Lost as Lost
from headway.storage.etcd.layout._mirror import Mirror as Mirror
from headway.storage.etcd.layout._mirror import OtherHistory as OtherHistory
from headway.storage.etcd.layout._transaction import Draft as Draft
from headway.storage.etcd.layout._transaction import Transaction as Transaction
from headway.storage.etcd.layout._transaction import TransactionReply as TransactionReply
from headway.storage.etcd.layout._transaction import comparison as comparison
from headway.storage.etcd.layout._transaction import empty as empty
from headway.storage.etcd.layout._transaction import put as put
from headway.storage.etcd.layout._transaction import putting as putting
from headway.storage.etcd.layout._transaction import transaction as transaction
from headway.storage.etcd.layout._transaction import unchanged as unchanged
