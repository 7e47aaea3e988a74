"""Shares of known and of unknown cells in new samples whose novelty is above a threshold.

    python -m benchmarks.doubts                       # all pairs, to benchmarks/results/doubts.csv
    python -m benchmarks.doubts --set develop         # pairs on which the method was chosen
    python -m benchmarks.doubts --set report -o mine.csv

A pair has a reference without one or two kinds of cells, and a query with them. The query comes
from the same data set, from another technology or from another data set. It is ingested in six
conditions: unchanged, with a half or a quarter of its genes, at 30 % of its depth, and normalised
in two other ways. The documented threshold was chosen on the pairs of `DEVELOP`. In addition, known
cells are ingested together with doublets, which are sums of the counts of two cells of different
known kinds.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import roc_auc_score, roc_curve

import centroid_encoder as ce
from benchmarks import datasets
from centroid_encoder.core.splits import stratified_holdout

RESULTS = Path(__file__).parent / "results" / "doubts.csv"
CONDITIONS = (
    "as it is",
    "half of the genes",
    "a quarter of the genes",
    "30 % of the depth",
    *(OTHER_VALUES := ("counts per million", "square roots")),
)
"""Conditions of a query; in those of `OTHER_VALUES`, its values are not log-normalised."""
LEVELS = (0.9, 0.92, 0.95, 0.99)
"""Thresholds of novelty."""
DOCUMENTED = 0.92
"""The threshold in the documentation; it was chosen on `DEVELOP`."""
N_GENES = 3000
"""Genes of pbmc3k that are used: those with the largest variance over all its cells."""
MAX_UNKNOWN = 0.25
"""Largest number of unknown cells in a query, relative to its known cells."""


@dataclass(frozen=True)
class Cells:
    """Counts and kinds of cells."""

    counts: Any
    """(n, d) CSR matrix."""
    total: NDArray[Any]
    """(n,) sums of the counts over all genes of the data set; ``counts`` may have fewer genes."""
    kind: NDArray[Any]
    """(n,) names."""
    genes: NDArray[Any]
    """(d,) names."""
    scale: float = 1e4
    """Total of a cell after the normalisation."""

    def __getitem__(self, rows: NDArray[Any]) -> Cells:
        of_rows = {name: getattr(self, name)[rows] for name in ("counts", "total", "kind")}
        return replace(self, **of_rows)


@dataclass(frozen=True)
class Pair:
    """Names of the reference and the query, and the kinds that the reference does not have."""

    reference: str
    query: str
    unknown: tuple[str, ...]
    conditions: tuple[str, ...] = CONDITIONS

    @property
    def title(self) -> str:
        """Name of the pair in the table."""
        way = self.reference
        if self.query != self.reference:
            way += f" → {self.query}"
        return f"{way}, without {' and '.join(self.unknown)}"


ACROSS = CONDITIONS[:2]
"""Conditions of most queries from another technology."""
DEVELOP = (
    Pair("pbmc3k", "pbmc3k", ("B",)),
    Pair("pbmc3k", "pbmc3k", ("NK",)),
    Pair("3pv2", "3pv1", ("B",), ACROSS),
    Pair("3pv2", "3pv1", ("Mono",), ACROSS),
    Pair("3pv2", "3pv1", ("NK",), ACROSS),
)
"""Pairs on which the method and its threshold were chosen."""
REPORT = (
    Pair("pbmc3k", "pbmc3k", ("Mono", "DC")),
    Pair("pbmc3k", "pbmc3k", ("T_CD8",)),
    Pair("paul15", "paul15", ("Erythrocyte",)),
    Pair("paul15", "paul15", ("Basophils",)),
    Pair("paul15", "paul15", ("Megakaryocytes",)),
    Pair("3pv2", "5p", ("B",), ACROSS),
    Pair("3pv2", "5p", ("Mono",), ACROSS),
    Pair("3pv2", "5p", ("NK",), ACROSS),
    Pair("5p", "3pv2", ("B",), ACROSS),
    Pair("pbmc3k", "5p", ("B",), ("as it is",)),
    Pair("pbmc3k", "5p", ("Mono",), ("as it is",)),
)
"""Pairs that took no part in a choice."""
NAMES = {
    "CD14+ Mono": "Mono",
    "FCGR3A+ Mono": "Mono",
    "Mono_CD14": "Mono",
    "Mono_CD16": "Mono",
    "Naive CD4 T": "T_CD4",
    "Memory CD4 T": "T_CD4",
    "CD8 T": "T_CD8",
    "Platelet": "MK",
}
"""Names of the kinds in the blood data sets, and the common name of each."""
RARE = ("MK", "HSC")
"""Kinds with very few cells, which are left out."""


def read(name: str) -> Cells:
    """Read the counts of paul15, of pbmc3k, or of one technology (donor) of pbmc_3tech."""
    if name == "paul15":
        adata = datasets.read_h5ad("paul15/paul15_240genes.h5ad")
        counts = sparse.csr_matrix(adata.X, dtype=np.float64)
        total, label = np.asarray(counts.sum(axis=1)).ravel(), "celltype"
    elif name == "pbmc3k":
        adata = datasets.read_h5ad("pbmc3k/pbmc3k_annotated.h5ad")
        total, label = adata.obs["nCount_RNA"].to_numpy(np.float64), "classified"
        values = adata.X.toarray()
        adata = adata[:, np.sort(np.argsort(-values.var(axis=0), kind="stable")[:N_GENES])].copy()
        counts = _counts(adata.X, total)
    else:
        adata = datasets.read_h5ad("pbmc_3tech/pbmc_3tech.h5ad")
        adata = adata[adata.obs["donor"] == name].copy()
        total, label = adata.obs["nUMI"].to_numpy(np.float64), "cell_type"
        counts = _counts(adata.X, total)
    kind = adata.obs[label].astype(str).replace(NAMES).to_numpy()
    # The 240 genes of paul15 have about 850 counts in a cell.
    scale = float(np.median(total)) if name == "paul15" else 1e4
    cells = Cells(counts, total, kind, adata.var_names.to_numpy(), scale)
    return cells[~np.isin(kind, RARE)]


def _counts(X: Any, total: NDArray[Any]) -> Any:
    """Return the counts for log(1 + counts per 10,000)."""
    counts = sparse.csr_matrix(X, dtype=np.float64)
    counts.data = np.expm1(counts.data)
    counts = sparse.csr_matrix(sparse.diags(total / 1e4) @ counts)
    counts.data = np.rint(counts.data)
    return counts


def split(pair: Pair, rng: np.random.Generator) -> tuple[Cells, Cells]:
    """Return the reference without the unknown kinds, and the query.

    If both come from one data set, 30 % of the known cells are in the query.
    """
    cells = read(pair.reference)
    familiar = np.flatnonzero(~np.isin(cells.kind, pair.unknown))
    if pair.query != pair.reference:
        reference, query = cells[familiar], read(pair.query)
        known = np.flatnonzero(np.isin(query.kind, reference.kind))
    else:
        _, codes = np.unique(cells.kind[familiar], return_inverse=True)
        held_out = stratified_holdout(codes, 0.3, 0)
        reference, query, known = cells[familiar[~held_out]], cells, familiar[held_out]
    unknown = np.flatnonzero(np.isin(query.kind, pair.unknown))
    n_unknown = min(len(unknown), int(MAX_UNKNOWN * len(known)))
    return reference, query[np.append(known, rng.choice(unknown, n_unknown, replace=False))]


def table(cells: Cells, condition: str, rng: np.random.Generator) -> AnnData:
    """Return the normalised values of cells in one of the `CONDITIONS`."""
    counts, total, genes = cells.counts, cells.total, np.arange(len(cells.genes))
    if condition == "30 % of the depth":
        whole = np.allclose(total, np.asarray(counts.sum(axis=1)).ravel())
        counts = counts.copy()
        counts.data = rng.binomial(counts.data.astype(int), 0.3).astype(np.float64)
        inside = np.asarray(counts.sum(axis=1)).ravel()
        total = np.maximum(inside if whole else np.round(0.3 * total), np.maximum(inside, 1))
    scale = 1e6 if condition == "counts per million" else cells.scale
    X = sparse.csr_matrix(sparse.diags(scale / total) @ counts)
    X.data = np.sqrt(X.data) if condition == "square roots" else np.log1p(X.data)
    if condition.endswith("of the genes"):
        share = 0.5 if condition.startswith("half") else 0.25
        genes = np.flatnonzero(rng.random(len(genes)) < share)
    names = [f"cell{i}" for i in range(len(total))]
    return AnnData(
        X[:, genes].astype(np.float32),
        obs=pd.DataFrame({"kind": pd.Categorical(cells.kind)}, index=names),
        var=pd.DataFrame(index=cells.genes[genes].astype(str)),
    )


def doublets(cells: Cells, rng: np.random.Generator, n: int = 300) -> Cells:
    """Return n sums of the counts of two random cells of different kinds."""
    first, second = rng.integers(len(cells.kind), size=(2, 10 * n))
    unlike = np.flatnonzero(cells.kind[first] != cells.kind[second])[:n]
    one, other = cells[first[unlike]], cells[second[unlike]]
    return replace(one, counts=one.counts + other.counts, total=one.total + other.total)


def measured(pair: Pair) -> Iterator[dict[str, Any]]:
    """Train on the reference of a pair, ingest its queries, and yield a row for each query."""
    rng = np.random.default_rng(0)
    reference, cells = split(pair, rng)
    known = table(reference, "as it is", rng)
    ce.tl.centroid_encoder(known, "kind", progress=False)
    unlike = np.isin(cells.kind, pair.unknown)
    for condition in pair.conditions:
        query = table(cells, condition, rng)
        shifted = ingested(query, known)
        novelty = query.obs["ce_novelty"].to_numpy()
        found = query.obs["ce_label"].astype(str).to_numpy()
        false, true, _ = roc_curve(unlike, novelty)
        yield {
            "pair": pair.title,
            "condition": condition,
            "shifted": shifted,
            "quartile": query.uns["ce"]["params"]["novelty_quartile"],
            "n_known": int((~unlike).sum()),
            "n_unknown": int(unlike.sum()),
            "accuracy": (found == cells.kind)[~unlike].mean(),
            "auroc": roc_auc_score(unlike, novelty),
            "possible": true[false <= 0.1].max(),
            **_above("known", novelty[~unlike]),
            **_above("unknown", novelty[unlike]),
        }
    query = table(doublets(cells[~unlike], rng), "as it is", rng)
    both = table(cells[~unlike], "as it is", rng)
    mixed = _joined(both, query)
    shifted = ingested(mixed, known)
    last = slice(both.n_obs, None)
    novelty = mixed.obs["ce_novelty"].to_numpy()[last]
    confidence = mixed.obs["ce_confidence"].to_numpy()[last]
    yield {
        "pair": pair.title,
        "condition": "doublets",
        "shifted": shifted,
        "n_known": both.n_obs,
        "n_unknown": query.n_obs,
        "confidence": float(np.median(confidence)),
        "doubted": ((novelty > DOCUMENTED) | (confidence < 0.5)).mean(),
        **_above("known", mixed.obs["ce_novelty"].to_numpy()[: both.n_obs]),
        **_above("unknown", novelty),
    }


def ingested(query: AnnData, known: AnnData) -> bool:
    """Ingest a query, and return whether a warning says that it is shifted as a whole."""
    job = ce.tl.ingest.job(query, known, missing="estimate", max_missing=1)
    job.run()
    job.write(query)
    return any("as a whole" in str(notice) for notice in job.notices)


def _above(name: str, novelty: NDArray[np.floating]) -> dict[str, float]:
    return {f"{name}_above_{level}": (novelty > level).mean() for level in LEVELS}


def _joined(first: AnnData, second: AnnData) -> AnnData:
    names = [f"cell{i}" for i in range(first.n_obs + second.n_obs)]
    X = sparse.vstack([first.X, second.X], format="csr")
    return AnnData(X, obs=pd.DataFrame(index=names), var=first.var)


def main() -> None:
    """Measure the pairs of one set or of both, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--set", choices=("develop", "report"), dest="chosen", help="set of pairs; default: both"
    )
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="CSV file to write")
    arguments = parser.parse_args()
    logging.getLogger("centroid_encoder").setLevel(logging.ERROR)
    rows: list[dict[str, Any]] = []
    for name, pairs in (("develop", DEVELOP), ("report", REPORT)):
        for pair in pairs if arguments.chosen in (None, name) else ():
            rows += [{"set": name, **row} for row in measured(pair)]
            frame = pd.DataFrame(rows)
            frame.to_csv(arguments.output, index=False, float_format="%.4f")
            print(frame[frame["pair"] == pair.title].to_string(), flush=True)


if __name__ == "__main__":
    main()
