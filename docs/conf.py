"""Sphinx configuration."""

import os
from importlib import metadata
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.intersphinx import resolve_reference_detect_inventory

project = "centroid-encoder"
author = "centroid-encoder developers"
copyright = f"2026, {author}"
release = metadata.version("centroid-encoder")
# Read the Docs has one site for each version, and gives its address.
site = os.environ.get(
    "READTHEDOCS_CANONICAL_URL", "https://centroid-encoder.github.io/centroid-encoder/"
)

extensions = [
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

# Sphinx downloads the inventory of each manual, a list of its names and their pages. Without a
# connection, it takes the names in docs/inventories, and the site has the same links.
MANUALS = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
    "matplotlib": "https://matplotlib.org/stable/",
    "anndata": "https://anndata.readthedocs.io/en/stable/",
    "scanpy": "https://scanpy.readthedocs.io/en/stable/",
    "sklearn": "https://scikit-learn.org/stable/",
    "skimage": "https://scikit-image.org/docs/stable/",
    "torch": "https://docs.pytorch.org/docs/stable/",
    "napari": "https://napari.org/stable/",
}
# `make lint` sets the tag `local`, so that each name is known to be in docs/inventories.
download = () if tags.has("local") else (None,)  # noqa: F821 - Sphinx defines `tags`
intersphinx_mapping = {
    manual: (address, (*download, f"inventories/{manual}.inv"))
    for manual, address in MANUALS.items()
}
intersphinx_timeout = 10

# Names without a dot are parameters, columns or words, and numpy's types have private parts. All
# other names must be found.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"[^.]*"),
    ("py:.*", r".*[ \[\]{}()=\"'×,].*"),
    ("py:.*", r"numpy\._typing\..*"),
    ("py:.*", r"\d.*"),
    ("py:class", r"jscatter\..*"),  # its manual has no inventory
    ("py:.*", r".*\.$"),
    # Core is for developers, who read the code.
    ("py:.*", r"(centroid_encoder\.)?(core|errors|recipes)\..*"),
    ("py:class", r"sparse\..*"),
    (
        "py:obj",
        r"(CodedMap|Division|Fit|FittedMap|Layout|Network|Novelty|novelty|Placer|Scatter)\..*",
    ),
    ("py:obj", r"CentroidEncoder\..*"),
]

# What docstrings and annotations call things, and what their manuals do.
ALIASES = {
    "AnnData": "anndata.AnnData",
    "ArrayLike": "numpy.typing.ArrayLike",
    "Axes": "matplotlib.axes.Axes",
    "DataFrame": "pandas.DataFrame",
    "Figure": "matplotlib.figure.Figure",
    "NDArray": "numpy.typing.NDArray",
    "Viewer": "napari.Viewer",
    "ndarray": "numpy.ndarray",
    "anndata._core.anndata.AnnData": "anndata.AnnData",
    "matplotlib.axes._axes.Axes": "matplotlib.axes.Axes",
    "numpy.random._generator.Generator": "numpy.random.Generator",
    "numpy.random.mtrand.RandomState": "numpy.random.RandomState",
    "torch._C.Generator": "torch.Generator",
    "CentroidEncoder": "centroid_encoder.CentroidEncoder",
}
SHORT = {"np.": "numpy.", "pd.": "pandas.", "ce.": "centroid_encoder."}


def by_another_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> Any:
    """Resolve a name that was not found by the name that its manual uses."""
    target = node.get("reftarget", "")
    name = ALIASES.get(target, target)
    for short, whole in SHORT.items():
        if name.startswith(short):
            name = whole + name.removeprefix(short)
    if name == target or node.get("refdomain") != "py":
        return None
    node["reftarget"] = name
    if name.startswith("centroid_encoder."):
        domain, page = env.domains["py"], node["refdoc"]
        return domain.resolve_xref(env, page, app.builder, "obj", name, node, content)
    return resolve_reference_detect_inventory(env, node, content)


def setup(app: Sphinx) -> None:
    """Connect the function above with a higher priority than intersphinx."""
    app.connect("missing-reference", by_another_name, priority=400)
