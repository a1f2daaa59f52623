"""Run records as one page that stands alone: tables, figures, and where every number is from."""

from ctta.bench.report.page import TITLE, require_extras, write_report

__all__ = ["TITLE", "require_extras", "write_report"]
