"""Write maps in today's format: ``PYTHONPATH=. python tests/data/make_maps.py``.

Every later release reads them, and `tests/test_old_maps.py` checks the results. The files of a
format are written once. A new version of the format gets its own files beside them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd

import centroid_encoder as ce
from centroid_encoder.core.saved import VERSION

DATA = Path(__file__).parent
MODELS: dict[str, dict[str, Any]] = {
    "voronoi": {"hidden": (8,)},
    "bottleneck": {"hidden": (8, 6), "placement": "bottleneck"},
}
COMMON = {"max_epochs": 5, "random_state": 0, "device": "cpu"}
LABELS = np.array(["B", "NK", "T"])


def cells(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the values (n, 6) and the labels (n,) of cells of three classes."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 3
    X = rng.normal(size=(n, 6)) + 2 * np.eye(3, 6)[codes]
    return X.astype(np.float32), LABELS[codes]


def table(X: np.ndarray, labels: np.ndarray | None = None) -> ad.AnnData:
    names = pd.Index([f"cell {i}" for i in range(len(X))])
    obs = pd.DataFrame(index=names)
    if labels is not None:
        obs["cell_type"] = pd.Categorical(labels)
    return ad.AnnData(X, obs=obs, var=pd.DataFrame(index=list("abcdef")))


def results(model: ce.CentroidEncoder, X: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "places": model.transform(X),
        "labels": model.predict(X).astype(str),
        "probabilities": model.predict_proba(X),
        "novelty": model.novelty(X),
    }


def ingested(X: np.ndarray, reference: Path) -> dict[str, np.ndarray]:
    query = table(X)
    ce.tl.ingest(query, reference)
    return {
        "places": query.obsm["X_ce"],
        "labels": query.obs["ce_label"].to_numpy().astype(str),
        "confidence": query.obs["ce_confidence"].to_numpy(),
        "novelty": query.obs["ce_novelty"].to_numpy(),
    }


def main() -> None:
    X, labels = cells(90, seed=0)
    new, _ = cells(30, seed=1)
    expected = {"X": new}
    for name, params in MODELS.items():
        path = DATA / f"format_{VERSION}_{name}.safetensors"
        if path.exists():
            raise SystemExit(f"{path} exists; the files of a format are written once")
        model = ce.CentroidEncoder(**params, **COMMON).fit(X, labels).fit_novelty(X, labels)
        model.save(path)
        expected |= {f"{name} {key}": value for key, value in results(model, new).items()}
    adata = table(X, labels)
    model = ce.CentroidEncoder(**MODELS["voronoi"], **COMMON)
    ce.tl.centroid_encoder(adata, "cell_type", model=model)
    path = DATA / f"format_{VERSION}.h5ad"
    adata.write_h5ad(path)
    expected |= {f"table {key}": value for key, value in ingested(new, path).items()}
    np.savez_compressed(DATA / f"format_{VERSION}.npz", **expected)


if __name__ == "__main__":
    main()
