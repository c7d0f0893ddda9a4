"""A service catalog on Headway: what Consul built on its controller runtime, as an app.

messages      the messages, with Consul's names and numbers
checks        the validation and the defaults of each type
types         the types
controllers   one controller a module
dns           a DNS server that answers from the catalog
registrar     registers local processes, and writes their health
"""

from catalog import controllers as controllers
from catalog import types as types
from catalog.application import app as app
