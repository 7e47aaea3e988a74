"""Training cells are as novel as new cells of the same kind."""

from __future__ import annotations

import numpy as np
import pytest
from anndata import AnnData

import centroid_encoder as ce


def noisy(n: int, seed: int) -> AnnData:
    """Cells of three classes that differ in few of 150 features; all else is noise."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 3
    X = rng.normal(size=(n, 150)).astype(np.float32)
    X[np.arange(n), codes] += 4
    adata = AnnData(X)
    adata.obs_names = [f"cell {seed} {i}" for i in range(n)]
    adata.obs["type"] = np.array(["a", "b", "c"])[codes]
    return adata


@pytest.mark.parametrize("seed", range(3))
def test_training_and_new_cells_are_equally_novel(seed) -> None:
    known, new = noisy(120, seed), noisy(300, seed + 100)
    model = ce.CentroidEncoder(max_epochs=3)
    ce.tl.centroid_encoder(known, "type", test_size=0, model=model, progress=False)
    ce.tl.ingest(new, known, progress=False)
    of_known, of_new = known.obs["ce_novelty"].mean(), new.obs["ce_novelty"].mean()
    assert of_known == pytest.approx(0.5, abs=0.02)
    assert of_new == pytest.approx(of_known, abs=0.12)


def test_so_are_real_cells(pbmc) -> None:
    model = ce.CentroidEncoder(max_epochs=3)
    adata = AnnData(pbmc.raw.X, obs=pbmc.obs, var=pbmc.raw.var)
    ce.tl.centroid_encoder(adata, "bulk_labels", test_size=0.5, model=model, progress=False)
    novelty = adata.obs.groupby("ce_split", observed=True)["ce_novelty"]
    assert novelty.mean()["train"] == pytest.approx(novelty.mean()["test"], abs=0.08)
    exceeding = adata.obs["ce_novelty"].gt(0.95).groupby(adata.obs["ce_split"], observed=True)
    assert exceeding.mean()["train"] == pytest.approx(0.05, abs=0.02)


def of_donors(donors: np.ndarray, means: np.ndarray, seed: int) -> AnnData:
    rng = np.random.default_rng(seed)
    donor = np.repeat(np.arange(len(donors)), 120)
    codes = rng.integers(len(means), size=len(donor))
    X = means[codes] + donors[donor] + rng.normal(size=(len(donor), means.shape[1]))
    adata = AnnData(X.astype(np.float32))
    adata.obs_names = [f"cell {seed} {i}" for i in range(len(donor))]
    adata.obs["type"] = codes.astype(str)
    adata.obs["donor"] = donor.astype(str)
    return adata


@pytest.mark.parametrize("n", [8, 4])
def test_known_cells_of_new_donors_are_as_novel_as_training_cells(n) -> None:
    rng = np.random.default_rng(0)
    means, donors = 1.5 * rng.normal(size=(5, 40)), 0.8 * rng.normal(size=(n + 12, 40))
    known, new = of_donors(donors[:n], means, 1), of_donors(donors[n:], means, 2)
    model = ce.CentroidEncoder(max_epochs=3)
    job = ce.tl.centroid_encoder.job(known, "type", group_key="donor", test_size=0, model=model)
    job.run()
    job.write(known)
    assert any("is rough" in str(text) for text in job.notices) == (n < 5)
    ce.tl.ingest(new, known, progress=False)
    assert known.obs["ce_novelty"].gt(0.95).mean() == pytest.approx(0.05, abs=0.01)
    assert new.obs["ce_novelty"].gt(0.95).mean() < (0.09 if n == 8 else 0.2)
    X, y, groups = known.X, known.obs["type"], known.obs["donor"]
    alone = ce.CentroidEncoder(max_epochs=3).fit(X, y).fit_novelty(X, y, groups=groups)
    assert (alone.novelty(new.X) > 0.95).mean() < (0.09 if n == 8 else 0.2)
    with pytest.raises(ValueError, match="missing values"):
        alone.fit_novelty(X, y, groups=groups.mask(groups == "0"))
