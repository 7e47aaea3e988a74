"""Are the features that `tl.rank_features` ranks first the right ones?

    python -m benchmarks.features planted   # features that were planted in simulated counts
    python -m benchmarks.features retrain   # errors with the best features alone, and without them
    python -m benchmarks.features sanity    # shuffled labels, random weights, stability
    python -m benchmarks.features markers   # known markers of blood cells

The rivals are scanpy's Wilcoxon and t-tests, its logistic regression, and a random order. Numbers
are means ± standard errors over draws or folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import scanpy as sc
import torch
from anndata import AnnData
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

import centroid_encoder as ce
from benchmarks import cell_sets
from benchmarks.parts import run_named

N_DRAWS = 10
N_PLANTED, N_GENES, N_CELLS, N_CLASSES = 20, 1_000, 800, 4
SIZES = (5, 10, 20, 50, 100)
MARKERS = {
    "B": "CD79A CD79B MS4A1 CD19 CD74 HLA-DRA TCL1A LINC00926 VPREB3 HLA-DQA1",
    "NK": "GNLY NKG7 GZMB PRF1 FGFBP2 SPON2 KLRD1 KLRF1 CLIC3 CST7",
    "CD14+ Mono": "CD14 LYZ S100A8 S100A9 FCN1 CST3 LGALS2 MS4A6A FTL TYROBP",
    "FCGR3A+ Mono": "FCGR3A MS4A7 LST1 AIF1 IFITM3 FCER1G COTL1 SERPINA1 CDKN1C LYPD2",
    "CD8 T": "CD8A CD8B CCL5 GZMK GZMA CST7 NKG7 CD3D GZMH LAG3",
    "Naive CD4 T": "CCR7 IL7R LEF1 TCF7 CD3D CD3E LDHB MAL NOSIP PIK3IP1",
    "Memory CD4 T": "IL7R S100A4 IL32 CD3D CD2 LTB AQP3 CD40LG TRADD ITGB1",
    "DC": "FCER1A CST3 CLEC10A CD1C HLA-DPA1 HLA-DPB1 HLA-DRA HLA-DQA1 ENHO SERPINF1",
    "Platelet": "PPBP PF4 GNG11 SDPR SPARC NRGN TUBB1 GP9 CLU ITGA2B",
}
"""Markers of the classes of pbmc3k as textbooks and tutorials list them. Some of them helped to
name the clusters, so that this is a check and no proof."""


def by_scanpy(method: str) -> Callable[[AnnData, int], pd.DataFrame]:
    """Return a function that ranks by one of scanpy's methods."""

    def rank(adata: AnnData, seed: int) -> pd.DataFrame:
        settings = {"max_iter": 200} if method == "logreg" else {}
        sc.tl.rank_genes_groups(adata, "label", method=method, key_added="r", **settings)
        return scores(adata, "r")

    return rank


def by_auroc(adata: AnnData, seed: int) -> pd.DataFrame:
    """Rank by effect sizes of the data."""
    ce.tl.rank_features(adata, "label", key_added="r")
    return scores(adata, "r")


def by_map(adata: AnnData, seed: int) -> pd.DataFrame:
    """Train a map, and rank by what its networks use."""
    ce.tl.centroid_encoder(
        adata, "label", mask_var=None, random_state=seed, progress=False, device="cpu"
    )
    ce.tl.rank_features(adata, "label", method="map", key_added="r")
    return scores(adata, "r").fillna(0)


def by_chance(adata: AnnData, seed: int) -> pd.DataFrame:
    """Order the features at random."""
    rng, names = np.random.default_rng(seed), np.unique(adata.obs["label"])
    return pd.DataFrame(
        {str(name): rng.random(adata.n_vars) for name in names}, index=adata.var_names
    )


METHODS: dict[str, Callable[[AnnData, int], pd.DataFrame]] = {
    "rank_features, auroc": by_auroc,
    "rank_features, map": by_map,
    "Wilcoxon": by_scanpy("wilcoxon"),
    "t-test": by_scanpy("t-test"),
    "logistic regression": by_scanpy("logreg"),
    "random": by_chance,
}


def scores(adata: AnnData, key: str) -> pd.DataFrame:
    """Scores of all features (rows) for each class (columns), from a result in scanpy's layout."""
    stored = adata.uns[key]
    columns = {
        name: pd.Series(stored["scores"][name], index=stored["names"][name])
        for name in stored["names"].dtype.names
    }
    return pd.DataFrame({name: column[adata.var_names] for name, column in columns.items()})


def cells(X: NDArray[Any], labels: NDArray[np.str_]) -> AnnData:
    """Return labelled cells as an AnnData."""
    adata = AnnData(np.asarray(X, np.float32))
    adata.obs["label"] = pd.Categorical(labels)
    return adata


def simulated(seed: int, fold: float) -> tuple[AnnData, NDArray[np.bool_]]:
    """Cells of four classes, and a (genes, classes) mask of planted genes.

    Counts are negative binomial with library sizes that differ; the planted genes of a class are
    `fold` times as frequent in it. The last class has a tenth of the cells of the others.
    """
    rng = np.random.default_rng(seed)
    share = rng.lognormal(sigma=1.2, size=N_GENES)
    codes = rng.choice(N_CLASSES, N_CELLS, p=[10 / 31, 10 / 31, 10 / 31, 1 / 31])
    planted = np.zeros((N_GENES, N_CLASSES), dtype=bool)
    order = rng.permutation(N_GENES)[: N_CLASSES * N_PLANTED]
    planted[order, np.arange(len(order)) % N_CLASSES] = True
    mean = share * np.where(planted.T, fold, 1.0)[codes]
    mean *= 2_000 * rng.lognormal(sigma=0.4, size=(N_CELLS, 1)) / share.sum()
    counts = rng.poisson(rng.gamma(2.0, mean / 2.0))
    adata = cells(counts, np.array(list("abcd"))[codes])
    sc.pp.normalize_total(adata)
    sc.pp.log1p(adata)
    return adata, planted


def planted() -> None:
    """Print how high the planted genes are ranked."""
    print("average precision and precision at 20 of 20 planted genes of a class, in %")
    for fold in (1.5, 2.0, 3.0):
        for name, rank in METHODS.items():
            found = []
            for seed in range(N_DRAWS):
                adata, truth = simulated(seed, fold)
                table = rank(adata, seed).to_numpy()
                precision = [
                    average_precision_score(*pair) for pair in zip(truth.T, table.T, strict=True)
                ]
                best = np.argsort(-table, axis=0)[:N_PLANTED]
                found.append([np.mean(precision), np.take_along_axis(truth, best, axis=0).mean()])
            print(f"{fold} x, {name}: {spread(found)}", flush=True)


def round_robin(table: pd.DataFrame, n: int) -> list[str]:
    """Take the best feature of each class in turn, until there are n."""
    order = [table[name].sort_values(ascending=False, kind="stable").index for name in table]
    return list(dict.fromkeys(name for row in zip(*order, strict=True) for name in row))[:n]


def retrain() -> None:
    """Print errors of judges on the best features of the training cells, and without them."""
    for data in ("pbmc3k", "paul15", "pbmc_3tech"):
        X, y, groups = cell_sets.load(data)
        print(f"{data}: held-out errors of 5-NN and of a random forest in %, kept | removed")
        for name, rank in METHODS.items():
            found: dict[int, list[list[float]]] = {size: [] for size in SIZES}
            for seed, split in enumerate(cell_sets.splits(X, y, groups)):
                adata = cells(split.X, split.codes.astype(str))
                table = rank(adata, seed)
                for size in SIZES:
                    best = adata.var_names.isin(round_robin(table, size))
                    found[size].append(errors(split, best, seed) + errors(split, ~best, seed))
            for size in SIZES:
                print(f"{data}, {name}, {size}: {spread(found[size])}", flush=True)


def errors(split: cell_sets.Split, chosen: NDArray[np.bool_], seed: int) -> list[float]:
    """Held-out errors of 5-NN and of a random forest on some of the features."""
    mean, scale = split.X[:, chosen].mean(axis=0), split.X[:, chosen].std(axis=0) + 1e-6
    train, test = ((Z[:, chosen] - mean) / scale for Z in (split.X, split.X_test))
    judges = KNeighborsClassifier(5), RandomForestClassifier(200, random_state=seed)
    return [
        float((one.fit(train, split.codes).predict(test) != split.truth).mean()) for one in judges
    ]


def sanity() -> None:
    """Print how far rankings change if labels or weights are random, or cells others."""
    X, y, _ = cell_sets.load("pbmc3k")
    kept = np.argsort(-X.var(axis=0))[: cell_sets.N_FEATURES]
    adata = cells(X[:, kept], y)
    table, rng = by_map(adata.copy(), 0), np.random.default_rng(0)
    other = by_map(adata.copy(), 1)
    shuffled = cells(adata.X, rng.permutation(y))
    random = adata.copy()
    by_map(random, 0)
    model = ce.tl.fitted_model(random, device="cpu")
    model.fitted_map.network._initialize("relu", torch.Generator().manual_seed(0))
    random.uns["ce"]["model"] = dict(zip(("config", "arrays"), state(model), strict=True))
    ce.tl.rank_features(random, "label", method="map", key_added="r")
    changes = {
        "another seed": other,
        "shuffled labels": by_map(shuffled, 0),
        "random weights": scores(random, "r").fillna(0),
    }
    for name, changed in changes.items():
        same = [spearmanr(table[one], changed[one]).statistic for one in table]
        top = [jaccard(table[one], changed[one]) for one in table]
        print(f"map, {name}: rank correlation {np.mean(same):.2f}, shared of 20 {np.mean(top):.2f}")
    print("share of the 20 best features of two disjoint halves of the cells that is common")
    for name, rank in METHODS.items():
        found = []
        for seed in range(5):
            folds = StratifiedKFold(2, shuffle=True, random_state=seed)
            halves = enumerate(rows for _, rows in folds.split(y, y))
            a, b = (rank(adata[rows].copy(), 2 * seed + i) for i, rows in halves)
            found.append([np.mean([jaccard(a[one], b[one]) for one in a])])
        print(f"{name}: {spread(found)}", flush=True)


def state(model: ce.CentroidEncoder) -> Iterator[object]:
    """Config as JSON, and arrays, as `uns` has them."""
    import json

    config, arrays = model.to_state()
    yield json.dumps(config)
    yield arrays


def jaccard(a: pd.Series, b: pd.Series, n: int = 20) -> float:
    """Common share of the n best features of two rankings."""
    best = [set(one.nlargest(n).index) for one in (a, b)]
    return len(best[0] & best[1]) / len(best[0] | best[1])


def markers() -> None:
    """Print the share of known markers among the best features of their classes."""
    X, y, _ = cell_sets.load("pbmc3k")
    from benchmarks import datasets

    names = datasets.read_h5ad(cell_sets.SETS["pbmc3k"][0]).var_names
    known = {name: set(text.split()) for name, text in MARKERS.items()}
    often = (X > 0).mean(axis=0) > 0.002
    adata = cells(X[:, often], y)
    adata.var_names = names[often]
    for name, rank in METHODS.items():
        table, found = rank(adata.copy(), 0), []
        for one, wanted in known.items():
            order = table[one].sort_values(ascending=False, kind="stable").index
            found.append([len(wanted & set(order[:n])) / len(wanted) for n in (10, 20, 50)])
        print(f"{name}: recall at 10, 20, 50 in %: {spread(found)}", flush=True)


def spread(found: object) -> str:
    """Means ± standard errors of the columns, in percent."""
    values = 100 * np.asarray(found, dtype=float)
    errors = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    pairs = zip(values.mean(axis=0), errors, strict=True)
    return " | ".join(f"{mean:.1f} ± {error:.1f}" for mean, error in pairs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sc.settings.verbosity = 0
    run_named(__doc__, planted, retrain, sanity, markers)
