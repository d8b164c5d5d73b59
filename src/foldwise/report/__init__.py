"""One HTML file about a search: self-contained, for people; everything that comes from the data is escaped."""

from foldwise.report.facts import gather
from foldwise.report.page import render, write_report

__all__ = ["gather", "render", "write_report"]
