"""Sphinx configuration."""

from importlib import metadata

project = "centroid-encoder"
author = "centroid-encoder developers"
copyright = f"2026, {author}"
release = metadata.version("centroid-encoder")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
default_role = "py:obj"
templates_path = ["_templates"]
exclude_patterns = ["_build"]

html_theme = "sphinx_book_theme"
html_title = project
html_theme_options = {
    "repository_url": "https://github.com/centroid-encoder/centroid-encoder",
    "use_repository_button": True,
}

# README.md is written for GitHub: math between dollars, links to headings. With html_image, a
# picture given as <img> and not found is a warning, not a hole in the page.
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 3

# A parameter's type is that of its docstring, or else its annotation.
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
# scikit-learn's metadata requests, whose docstrings link into its own manual.
autodoc_default_options = {"exclude-members": "set_fit_request, set_score_request"}
napoleon_google_docstring = False
