"""The results and labels that a session reads from its table."""

from __future__ import annotations

from collections.abc import Callable

import anndata as ad
import numpy as np
import pytest

import centroid_encoder as ce
from centroid_encoder.viewer.session.session import Session


@pytest.fixture
def session() -> Session:
    return Session()


def show(session: Session, adata: ad.AnnData) -> None:
    session.catalog.choose(session.catalog.add(adata, "cells"))


def test_results_of_any_name_are_shown(
    session: Session, make_cells: Callable[..., ad.AnnData], fast: ce.CentroidEncoder
) -> None:
    cells, others = make_cells(), make_cells()
    for key in ("second", "first"):
        ce.tl.centroid_encoder(cells, "cell_type", model=fast, key_added=key, progress=False)
    ce.tl.centroid_encoder(others, "cell_type", model=fast, progress=False)
    # Without results of the name before and without "ce", the first ones are shown.
    for adata, key in ((cells, "first"), (others, "ce"), (make_cells(), "ce")):
        show(session, adata)
        assert session.key == key
        assert (session.result is not None) == (key in adata.uns)


def test_a_column_of_measurements_is_no_correction(
    session: Session, cells: ad.AnnData, fast: ce.CentroidEncoder
) -> None:
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
    scores = np.linspace(0, 1, cells.n_obs)
    cells.obs["cell_type_relabeled"] = scores
    show(session, cells)
    session.choose_labels("cell_type")
    assert session.result is not None
    assert list(session.classes) == ["type 0", "type 1", "type 2"]
    # The column of the user is not written to.
    errors: list[Exception] = []
    session.failed.connect(errors.append)
    session.select(np.array([0]))
    session.relabel("type 1")
    assert "fractional" in str(errors[0])
    assert cells.obs["cell_type_relabeled"].tolist() == scores.tolist()
