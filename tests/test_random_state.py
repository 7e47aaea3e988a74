"""No public call reads or changes the global random state of Python, numpy or torch."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

import centroid_encoder as ce

X = np.random.default_rng(0).normal(size=(60, 5))
y = np.repeat(["a", "b", "c"], 20)


def states() -> tuple[bytes, ...]:
    return (
        pickle.dumps(random.getstate()),
        pickle.dumps(np.random.get_state()),  # noqa: NPY002 - it is what must not change
        torch.get_rng_state().numpy().tobytes(),
    )


@pytest.fixture
def untouched() -> Iterator[None]:
    before = states()
    yield
    assert states() == before


@pytest.fixture
def fitted(fast: ce.CentroidEncoder) -> ce.CentroidEncoder:
    return fast.fit(X, y)


ESTIMATOR: dict[str, Callable[[ce.CentroidEncoder], Any]] = {
    "transform": lambda model: model.transform(X),
    "predict": lambda model: model.predict(X),
    "predict_voronoi": lambda model: model.predict_voronoi(X),
    "score": lambda model: model.score(X, y),
    "inverse_transform": lambda model: model.inverse_transform(X[:, :2]),
    "decoder_distances": lambda model: model.decoder_distances(X[:, :2]),
    "to_state": lambda model: type(model).from_state(*model.to_state()),
    "from_recipe": lambda model: type(model).from_recipe("paper-iris"),
    "repr": repr,
}


@pytest.mark.parametrize("seed", [None, 0, np.random.default_rng(0), np.random.RandomState(0)])
@pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
@pytest.mark.usefixtures("untouched")
def test_fit(seed, placement):
    model = ce.CentroidEncoder(
        placement=placement,
        hidden=(8, 4),
        pretrain_epochs=1 if placement == "bottleneck" else "auto",
        max_epochs=2,
        validation_fraction=0.2,
        merge_epochs=1,
        dropout=0.3,
        random_state=seed,
    )
    model.fit_transform(X, y)


@pytest.mark.parametrize("name", ESTIMATOR)
def test_methods_of_the_estimator(fitted, name):
    before = states()
    ESTIMATOR[name](fitted)
    assert states() == before


def test_save_and_load(fitted, tmp_path):
    before = states()
    fitted.save(tmp_path / "map.safetensors")
    ce.load(tmp_path / "map.safetensors").transform(X)
    assert states() == before


@pytest.mark.parametrize("seed", [0, np.random.default_rng(0)])
@pytest.mark.parametrize("group_key", [None, "donor"])
def test_tools(cells, fast, seed, group_key):
    cells.obs["donor"] = [f"d{i % 4}" for i in range(120)]
    before = states()
    ce.tl.centroid_encoder(
        cells, "cell_type", model=fast, random_state=seed, group_key=group_key, progress=False
    )
    ce.tl.fitted_model(cells)
    assert states() == before


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_plots(embed, n_components, tmp_path):
    adata = embed(n_components=n_components)
    before = states()
    for regions in ("voronoi", "decoder"):
        ce.pl.voronoi(
            adata,
            regions=regions,
            legend_loc="on data",
            mark_misplaced=True,
            show=False,
            save=tmp_path / "figure.png",
        )
    ce.pl.history(adata, show=False)
    assert states() == before


def test_results_do_not_depend_on_it(cells, fast):
    results = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        copy = ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False, copy=True)
        results.append(copy.obsm["X_ce"])
    assert_array_equal(*results)


def test_number_of_threads_and_denormals_come_back(cells, fast):
    tiny = torch.tensor(torch.finfo(torch.float32).tiny)
    before = torch.get_num_threads(), bool(tiny / 2)
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
    assert (torch.get_num_threads(), bool(tiny / 2)) == before
