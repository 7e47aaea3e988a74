"""Cross-validate a Centroid-Encoder on an AnnData."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._cells import Missing
from centroid_encoder.tl._cross_validation import CrossValidation
from centroid_encoder.tl._jobs import from_job

if TYPE_CHECKING:
    from anndata import AnnData


@from_job
def cross_validate(
    adata: AnnData,
    label_key: str,
    *,
    n_folds: int | None = None,
    n_repeats: int = 1,
    group_key: str | None = None,
    n_permutations: int = 0,
    n_components: int | None = None,
    use_rep: str | None = None,
    layer: str | None = None,
    mask_var: NDArray[np.bool_] | str | None = "auto",
    unlabeled_category: str | None = None,
    missing: Missing = "error",
    model: CentroidEncoder | None = None,
    key_added: str | None = None,
    random_state: int | np.random.Generator = 0,
    device: str | None = None,
    progress: bool = True,
    copy: bool = False,
) -> CrossValidation:
    """Find out how much of a supervised embedding is real: cross-validation and permutation test.

    Every labeled cell is judged by a network that has not seen it: scaling, centroids, training
    and calibration know the other folds only. What comes out is an error with its spread, and for
    each cell a class and a probability in which its own label had no say, so that mislabelled
    cells show up (see `mislabeled`). The embedding that `centroid_encoder` stored, if there is
    one, stays as it is.

    Parameters
    ----------
    adata
        Annotated data, log-normalised for counts.
    label_key
        As in `centroid_encoder`. Cells without a label are judged by all networks together.
    n_folds
        Number of folds. Default: 5, or the number of groups if there are fewer.
    n_repeats
        How many times the cells are divided into folds anew. Probabilities are averaged.
    group_key
        Column of ``adata.obs`` with donors or batches: each stays in one fold, so that the errors
        are those of a new donor.
    n_permutations
        How many times to shuffle the labels and train anew, to see which error chance gives: 19
        for a smallest p value of 0.05, 99 for 0.01. With `group_key`, labels are shuffled within
        groups, or, where each group has one class, between them.
    n_components, use_rep, layer, mask_var, unlabeled_category, missing, device
        As in `centroid_encoder`.
    model
        As in `centroid_encoder`. Its own ``random_state`` has no effect.
    key_added
        Name k for the results in ``uns["k_cv"]`` and ``obs["k_cv_…"]``. Default: ``"ce"``.
    random_state
        Seed of everything. Each training's seed comes from its place alone: a run with more repeats
        or permutations contains the same ones.
    progress
        Show a progress bar.
    copy
        Return a changed copy instead of changing `adata`.

    Returns
    -------
    AnnData | None
        None, or the copy if ``copy=True``. Sets the following fields:

        ``adata.obs["ce_cv_label"]`` : :class:`pandas.Series` (dtype ``category``)
            Out-of-fold predicted class of every cell, with the categories of `label_key`.
        ``adata.obs["ce_cv_confidence"]`` : :class:`pandas.Series` (dtype ``float32``)
            Its probability.
        ``adata.obs["ce_cv_own"]`` : :class:`pandas.Series` (dtype ``float32``)
            Out-of-fold probability of the cell's own label; NaN for cells without one.
        ``adata.uns["ce_cv"]`` : :class:`dict`
            ``quality`` (mean of each error over all folds, and ``…_sd``, its standard deviation
            over them; ``calibration_error``); ``errors`` (a DataFrame, one row a fold);
            ``per_class`` (a DataFrame); ``classes``; ``confusion`` (n_classes × n_classes, cells
            of the row's class that were taken for the column's); ``permutation`` (``observed``
            error, ``errors`` under shuffled labels, ``p_value``); ``warnings`` (sentences, which
            are logged as well); ``params``.

    Raises
    ------
    KeyError
        If a key does not exist.
    TypeError
        If the label column holds measurements rather than classes, or if an argument is of
        another kind, such as the path of a file.
    ValueError
        If the data cannot be used as they are, or cannot be divided into so many folds. `adata` is
        then as it was.

    Notes
    -----
    Errors are shares in [0, 1]: ``knn`` (5 neighbours in the embedding, the paper's measure),
    ``voronoi``, ``decoder``; ``input_knn``, 5 neighbours in the standardised input space of the
    same networks (of at most 10,000 cells, for at most 2,000 of a fold), says what the embedding
    loses; ``chance`` is that of naming the largest class. With ``balanced_`` every class counts the
    same.

    The calibration of a fold's probabilities is fitted to the other folds' out-of-fold distances.

    The permutation test is on the k-NN error of the first repeat, over as many folds as hold 500
    cells (all of them in small data): counted in the same way on the real and on the shuffled
    labels, for each of which the networks are trained anew.

    Ctrl-C leaves `adata` as it was.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.cross_validate(adata, "bulk_labels", progress=False)
    >>> adata.uns["ce_cv"]["quality"]["knn_error"] < 0.3
    True
    """
    del progress, copy  # of these `from_job` takes care
    return CrossValidation(
        adata,
        label_key,
        n_folds=n_folds,
        n_repeats=n_repeats,
        group_key=group_key,
        n_permutations=n_permutations,
        n_components=n_components,
        use_rep=use_rep,
        layer=layer,
        mask_var=mask_var,
        unlabeled_category=unlabeled_category,
        missing=missing,
        model=model,
        key_added=key_added,
        random_state=random_state,
        device=device,
    )
