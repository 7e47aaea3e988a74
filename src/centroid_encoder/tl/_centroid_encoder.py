"""Train a Centroid-Encoder on an AnnData."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._cells import Missing
from centroid_encoder.tl._jobs import from_job
from centroid_encoder.tl._run import Run

if TYPE_CHECKING:
    from anndata import AnnData


@from_job
def centroid_encoder(
    adata: AnnData,
    label_key: str,
    *,
    n_components: int | None = None,
    use_rep: str | None = None,
    layer: str | None = None,
    mask_var: NDArray[np.bool_] | str | None = "auto",
    unlabeled_category: str | None = None,
    missing: Missing = "error",
    test_size: float = 0.2,
    group_key: str | None = None,
    model: CentroidEncoder | None = None,
    key_added: str | None = None,
    random_state: int | np.random.Generator = 0,
    device: str | None = None,
    progress: bool = True,
    copy: bool = False,
) -> Run:
    """Embed cells so that their classes stay together: the Centroid-Encoder of Ghosh & Kirby.

    A network is trained to map every labeled cell to the mean of its class, through a bottleneck of
    two units: the embedding. A part of the labeled cells is held out and never shapes the map; the
    errors counted on it say how much of the picture is real.

    Parameters
    ----------
    adata
        Annotated data, log-normalised for counts. Standardisation is part of the map.
    label_key
        Column of ``adata.obs`` with the classes: categorical, string, integer or boolean. Cells
        without a label are embedded but not trained on.
    n_components
        Dimension of the embedding. Default: 2; with a `model`, what that says.
    use_rep
        Key of ``adata.obsm`` to learn from instead of the expression matrix. Of a DataFrame, the
        columns are told by their names: `ingest` finds them in any order.
    layer
        Key of ``adata.layers`` to learn from instead of ``adata.X``.
    mask_var
        Variables to learn from: a column of ``adata.var`` or one bool for each variable; a Series
        goes by its index. Default: ``highly_variable`` where there is such a column, like scanpy's
        PCA; None takes all.
    unlabeled_category
        Category of `label_key` that stands for "unlabeled", besides NaN.
    missing
        What to do about cells with NaN or inf: raise an error, leave them out of everything
        (``"drop"``), or put the mean of the training cells in the place of the value (``"mean"``).
    test_size
        Share of the labeled cells to hold out, in [0, 1), stratified by class. Classes with fewer
        than ``1 / test_size`` cells stay in training.
    group_key
        Column of ``adata.obs`` with donors or batches: each goes as a whole to one side, so that
        the held-out error is that of a new donor.
    model
        Configured `CentroidEncoder` with other settings than the default. It is not changed.
    key_added
        Name k for the results in ``obsm[k]``, ``uns[k]`` and ``obs["k_…"]``. Default: ``"ce"``;
        the embedding is then in ``obsm["X_ce"]``.
    random_state
        Seed for split and training; the same int gives the same bits on the same machine.
    device
        Where to compute: ``"auto"`` or a torch device. Default: ``"auto"``; with a `model`, what
        that says.
    progress
        Show a progress bar.
    copy
        Return a changed copy instead of changing `adata`.

    Returns
    -------
    AnnData | None
        None, or the copy if ``copy=True``. Sets the following fields:

        ``adata.obsm["X_ce"]`` : :class:`numpy.ndarray` (dtype ``float32``)
            The embedding of all cells, n_obs × n_components; NaN for cells left out by
            ``missing="drop"``.
        ``adata.obs["ce_split"]`` : :class:`pandas.Series` (dtype ``category``)
            ``"train"``, ``"test"`` or ``"unlabeled"``.
        ``adata.obs["ce_label"]`` : :class:`pandas.Series` (dtype ``category``)
            Predicted class of every cell, with the categories of `label_key`: the class whose
            centroid is nearest to the decoder's output.
        ``adata.obs["ce_confidence"]`` : :class:`pandas.Series` (dtype ``float32``)
            Its probability, which tells doubt between the classes. It is calibrated on the
            held-out cells, so that of the cells with 0.8, four in five are right; with
            ``test_size=0`` on the training cells, of which the map is too sure.
        ``adata.obs["ce_novelty"]`` : :class:`pandas.Series` (dtype ``float32``)
            The other doubt: how unlike anything seen in training the cell is. Share of the
            training cells, each judged by the others, that are less novel; NaN with fewer than ten
            training cells.
        ``adata.uns["ce"]`` : :class:`dict`
            ``params``; ``classes`` and their ``centers`` (n_classes × n_components, means of the
            embedded training cells); ``history`` (a DataFrame, one row an epoch); ``quality``
            (``train`` and ``test`` errors as shares in [0, 1], and a DataFrame ``per_class``; of
            the held-out cells also the expected ``calibration_error`` of their confidence, and
            what it was before calibration, ``uncalibrated_error``);
            ``model`` (the fitted map, see `fitted_model`).

    Raises
    ------
    KeyError
        If a key does not exist.
    TypeError
        If the label column holds measurements rather than classes, or if an argument is of
        another kind, such as the path of a file.
    ValueError
        If the data cannot be used as they are; the message says where and what to do. `adata` is
        then as it was.

    Notes
    -----
    The *k-NN error* (k = 5) is the paper's measure: neighbours among the embedded training cells.
    For the training cells themselves the cell is not its own neighbour.

    Ctrl-C keeps the best state so far, with a warning; before the first epoch is over it leaves
    `adata` as it was.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.centroid_encoder(adata, "bulk_labels", progress=False)
    >>> adata.obsm["X_ce"].shape
    (700, 2)
    """
    del progress, copy  # of these `from_job` takes care
    return Run(
        adata,
        label_key,
        n_components=n_components,
        use_rep=use_rep,
        layer=layer,
        mask_var=mask_var,
        unlabeled_category=unlabeled_category,
        missing=missing,
        test_size=test_size,
        group_key=group_key,
        model=model,
        key_added=key_added,
        random_state=random_state,
        device=device,
    )
