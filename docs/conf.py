"""Sphinx configuration."""

import os
import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from inventories import inventories

project = "centroid-encoder"
author = "centroid-encoder developers"
copyright = f"2026, {author}"
release = metadata.version("centroid-encoder")
# Read the Docs has one site for each version, and gives its address.
site = os.environ.get(
    "READTHEDOCS_CANONICAL_URL", "https://centroid-encoder.github.io/centroid-encoder/"
)

extensions = [
    "inventories",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxext.opengraph",
]
default_role = "py:obj"
templates_path = ["_templates"]
exclude_patterns = ["_build"]

html_theme = "sphinx_book_theme"
html_title = project
html_logo = html_favicon = "../src/centroid_encoder/viewer/icon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "repository_url": "https://github.com/centroid-encoder/centroid-encoder",
    "use_repository_button": True,
    "use_issues_button": True,
    "path_to_docs": "docs",
    "show_toc_level": 2,
    "logo": {"text": project},
    "navbar_persistent": [],  # the search is in the sidebar
    "announcement": (
        f"This describes {release}, which is in development." if "dev" in release else ""
    ),
}

html_baseurl = site

# Links to a page on other sites show the first picture of the page, or else this one.
ogp_site_url = site
ogp_image = f"{site}_images/tour-trained.png"
ogp_image_alt = "A tissue in napari, and the map of its cells beside it"
ogp_use_first_image = True
ogp_custom_meta_tags = ('<meta name="twitter:card" content="summary_large_image" />',)
ogp_social_cards = {"enable": False}

# With html_image, a missing picture in an <img> is a warning.
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "html_image"]
myst_heading_anchors = 3

# Tutorials run when the site is built, and again only after a change: their outputs are cached in
# docs/_build (`make clean` removes it). An error in a tutorial is an error of the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parent / "_build" / "executed")
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_in_temp = True
nb_merge_streams = True
nb_output_stderr = "remove"  # progress bars
# At each start the kernel would warn that it listens on this machine without encryption.
ipython = Path(__file__).parent / "_build" / "ipython"
(ipython / "profile_default").mkdir(parents=True, exist_ok=True)
(ipython / "profile_default" / "ipython_kernel_config.py").write_text(
    "c.IPKernelApp.log_level = 40\n", encoding="utf-8"
)
os.environ["IPYTHONDIR"] = str(ipython)

# Prompts and outputs are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# The type of a parameter is that of its docstring, or else of its annotation.
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
# scikit-learn's metadata requests, whose docstrings link into its own manual.
autodoc_default_options = {"exclude-members": "set_fit_request, set_score_request"}
napoleon_google_docstring = False

intersphinx_mapping = inventories()
intersphinx_timeout = 10

# Names without a dot are parameters, columns or words, and numpy's types have private parts. All
# other names must be found.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"[^.]*"),
    ("py:.*", r".*[ \[\]{}()=\"'×,].*"),
    ("py:.*", r"numpy\._typing\..*"),
    ("py:.*", r"\d.*"),
    ("py:.*", r".*\.$"),
    # Core is for developers, who read the code.
    ("py:.*", r"(centroid_encoder\.)?(core|errors|recipes)\..*"),
    ("py:class", r"sparse\..*"),
    ("py:obj", r"(CodedMap|Division|Fit|FittedMap|Layout|Network|Novelty|novelty|Scatter)\..*"),
    ("py:obj", r"CentroidEncoder\..*"),
]
