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
templates_path = ["_templates"]
exclude_patterns = ["_build", "generated/*.ipynb"]

html_theme = "sphinx_book_theme"
html_title = project
html_theme_options = {
    "repository_url": "https://github.com/centroid-encoder/centroid-encoder",
    "use_repository_button": True,
}

# README.md is written for GitHub: math between dollars, <img>, links to headings.
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 3

# Types stand in the signatures' annotations alone; the pages show them beside each parameter.
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
