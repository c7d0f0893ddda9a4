"""A DNS server that answers from the catalog.

names      the meaning of a name of the domain
instances  the addresses, ports and weights of the healthy instances in a resource
records    the answers that instances make
answers    the bytes of an answer, in an order that follows the weights
zone       the answer to a question, from the cache
packets    from the bytes of a query to the bytes of its answer
freshness  the check that the cache is good enough to answer from
server     UDP and TCP

``python -m catalog.dns`` starts it.
"""

from catalog.dns.freshness import Source as Source
from catalog.dns.packets import Responder as Responder
from catalog.dns.server import DNSServer as DNSServer
from catalog.dns.zone import Zone as Zone
