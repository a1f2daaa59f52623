"""Contract tests for adaptation methods.

>>> from ctta.testing import check_adapter
>>> check_adapter(MyMethod)  # doctest: +SKIP
"""

from ctta.errors import ContractBroken
from ctta.testing.contract import check_adapter, checks
from ctta.testing.subject import Subject

__all__ = ["ContractBroken", "Subject", "check_adapter", "checks"]
