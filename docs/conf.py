"""Settings of the documentation site; `make docs` builds it."""

from foldwise.version import __version__

project = "foldwise"
author = "The foldwise developers"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.autosummary"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"foldwise {__version__}"

myst_heading_anchors = 3
napoleon_numpy_docstring = True
napoleon_google_docstring = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = False
# What scikit-learn's base classes bring along is documented there.
autodoc_default_options = {"members": True, "show-inheritance": False}


def _skip(app, what, name, obj, skip, options):
    """scikit-learn's generated set_..._request methods are documented there, with references that lead there."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", _skip)
