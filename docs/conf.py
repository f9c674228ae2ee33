"""Sphinx: ``make docs`` builds these pages into build/docs."""
from sot.support.version import VERSION

project, release, version = "SOT", VERSION, VERSION
copyright = author = "the SOT maintainers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "SOT"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
suppress_warnings = ["myst.xref_missing"]       # ARCHITECTURE.md links to files of the repository
