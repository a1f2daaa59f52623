"""Run records as one self-contained HTML page: tables, plots, and the origin of every number."""

from ctta.report.page import TITLE, require_extras, write_report

__all__ = ["TITLE", "require_extras", "write_report"]
