"""Quotas: limits of what a partition or a namespace may hold, which every commit keeps.

    await client.apply(QUOTA.new("red", Quota(namespace="red", max_resources=1000)))
    for each in await list_quotas(client): ...

A quota is a resource. The engine gives its store a rule of commits (`headway.storage.CommitRule`), which follows the
quotas and what they count, and refuses the commits that have no room. Read `_limits.py` first, then `_rule.py`.
"""

from headway._gen.headway.tenancy.v1 import Quota as Quota
from headway.quotas._checks import QuotaRules as QuotaRules
from headway.quotas._client import QuotaInfo as QuotaInfo
from headway.quotas._client import list_quotas as list_quotas
from headway.quotas._extension import quotas_extension as quotas_extension
from headway.quotas._keeping import list_uses as list_uses
from headway.quotas._keeping import quotas_now as quotas_now
from headway.quotas._keeping import rule_of as rule_of
from headway.quotas._limits import STATUS_ROOM as STATUS_ROOM
from headway.quotas._limits import Limit as Limit
from headway.quotas._limits import Place as Place
from headway.quotas._limits import QuotaUse as QuotaUse
from headway.quotas._limits import Use as Use
from headway.quotas._limits import is_exempt as is_exempt
from headway.quotas._rule import QuotaRule as QuotaRule
from headway.quotas._service import QuotaApi as QuotaApi
from headway.quotas._service import QuotaService as QuotaService
from headway.quotas._type import QUOTA as QUOTA
from headway.quotas._type import quota_problem as quota_problem
