"""The contract every adapter keeps, for authors of methods: ``check_adapter(MyMethod)``."""

from ctta.errors import ContractBroken
from ctta.testing.contract import check_adapter, checks
from ctta.testing.subject import Subject

__all__ = ["ContractBroken", "Subject", "check_adapter", "checks"]
