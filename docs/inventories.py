"""Links into other manuals, with and without a network.

Sphinx downloads the inventory of each manual, a list of its names and their pages. Without a
connection, the names below are used, so that the site builds anywhere with the same links.
"""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.intersphinx import resolve_reference_detect_inventory

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
# Manual, name, role, page; a $ at the end of a page stands for the name.
PAGES = """
python collections.abc.Callable class library/collections.abc.html#$
python collections.abc.Sequence class library/collections.abc.html#$
python os.PathLike class library/os.html#$
python pathlib.Path class library/pathlib.html#$
numpy numpy.bool class reference/arrays.scalars.html#$
numpy numpy.bool_ class reference/arrays.scalars.html#$
numpy numpy.dtype class reference/generated/numpy.dtype.html#$
numpy numpy.float32 class reference/arrays.scalars.html#$
numpy numpy.float64 class reference/arrays.scalars.html#$
numpy numpy.floating class reference/arrays.scalars.html#$
numpy numpy.generic class reference/arrays.scalars.html#$
numpy numpy.int64 class reference/arrays.scalars.html#$
numpy numpy.integer class reference/arrays.scalars.html#$
numpy numpy.intp class reference/arrays.scalars.html#$
numpy numpy.ndarray class reference/generated/numpy.ndarray.html#$
numpy numpy.random.Generator class reference/random/generator.html#$
numpy numpy.random.RandomState class reference/random/legacy.html#$
numpy numpy.typing.ArrayLike data reference/typing.html#$
numpy numpy.typing.NDArray data reference/typing.html#$
pandas pandas.DataFrame class reference/api/pandas.DataFrame.html#$
pandas pandas.Index class reference/api/pandas.Index.html#$
pandas pandas.Series class reference/api/pandas.Series.html#$
matplotlib matplotlib.axes.Axes class api/_as_gen/matplotlib.axes.Axes.html#$
matplotlib matplotlib.figure.Figure class api/_as_gen/matplotlib.figure.Figure.html#$
anndata anndata.AnnData class generated/anndata.AnnData.html#$
scanpy scanpy.pl.embedding function generated/scanpy.pl.embedding.html#$
scanpy scanpy.pp.log1p function generated/scanpy.pp.log1p.html#$
scanpy scanpy.pp.normalize_total function generated/scanpy.pp.normalize_total.html#$
sklearn sklearn.pipeline.Pipeline class modules/generated/sklearn.pipeline.Pipeline.html#$
skimage skimage.measure.regionprops function api/skimage.measure.html#$
torch torch.Generator class generated/torch.Generator.html#$
torch torch.Tensor class tensors.html#$
torch torch.nn.utils.skip_init function generated/torch.nn.utils.skip_init.html#$
torch torch.device class tensor_attributes.html#$
napari napari.Viewer class api/napari.Viewer.html#$
"""
# What docstrings call things, and what their manuals do.
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
    "numpy.random._generator.Generator": "numpy.random.Generator",
    "numpy.random.mtrand.RandomState": "numpy.random.RandomState",
    "torch._C.Generator": "torch.Generator",
    "CentroidEncoder": "centroid_encoder.CentroidEncoder",
}
SHORT = {"np.": "numpy.", "pd.": "pandas.", "ce.": "centroid_encoder."}


def inventories() -> dict[str, tuple[str, tuple[str | None, str]]]:
    """Return ``intersphinx_mapping``: for each manual its own inventory, and one of `PAGES`."""
    folder = Path(tempfile.mkdtemp(prefix="inventories-"))
    lines: dict[str, list[str]] = {manual: [] for manual in MANUALS}
    for line in PAGES.split("\n"):
        if line:
            manual, name, role, page = line.split()
            lines[manual].append(f"{name} py:{role} 1 {page} -\n")
    for manual, entries in lines.items():
        head = f"# Sphinx inventory version 2\n# Project: {manual}\n# Version: \n"
        head += "# The remainder of this file is compressed using zlib.\n"
        body = zlib.compress("".join(entries).encode())
        (folder / f"{manual}.inv").write_bytes(head.encode() + body)
    return {
        manual: (address, (None, str(folder / f"{manual}.inv")))
        for manual, address in MANUALS.items()
    }


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


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the function above with a higher priority than intersphinx."""
    app.connect("missing-reference", by_another_name, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
