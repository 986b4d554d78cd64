"""Results for people: terminal tables, figures, HTML reports."""

from tacit.report.html import write_html
from tacit.report.tables import compare_table, run_table, write_comparison

__all__ = ["compare_table", "run_table", "write_comparison", "write_html"]
