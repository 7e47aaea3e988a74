"""5-NN errors after training on few samples, on data that experiment 3 does not use.

    python -m benchmarks.few 145                # the default, 145 training samples
    python -m benchmarks.few 145 dropout=0.2    # with other parameters of `CentroidEncoder`
    python -m benchmarks.few 1350 --outside landsat n_components=5
    python -m benchmarks.few 1350 --outside landsat --method "RBF SVM"

Each data set has four random draws. A draw has the given number of training samples and up to 1,500
of the other samples as test samples. With `--outside`, there is one data set alone: the samples of
Letter, Landsat or Phoneme that the tables of experiment 2 do not use, with up to 3,000 test
samples. Prints mean and standard deviation of the errors over the draws. Needs the data folder.
"""

from __future__ import annotations

import argparse
from ast import literal_eval
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from benchmarks import datasets
from benchmarks.methods import METHODS, Run, centroid_encoder
from benchmarks.protocols import N_DRAWN

Data = tuple[NDArray[Any], NDArray[Any]]
N_DRAWS = 4
N_TEST = 1500
"""Largest number of test samples."""
N_TEST_OUTSIDE = 3000
"""Largest number of test samples with `--outside`."""


def pooled(data: Data, size: int, width: int) -> Data:
    """Average images of size × size pixels over squares of width × width pixels."""
    X, y = data
    blocks = X.astype(np.float32).reshape(len(X), size // width, width, size // width, width)
    return blocks.mean(axis=(2, 4)).reshape(len(X), -1), y


def cells(path: str, label_key: str, n_classes: int, n_features: int, counts: bool = False) -> Data:
    """Return cells of the largest classes, with the features of largest variance among them.

    ``counts`` are normalised to the median count of the cells, and their logarithms taken.
    """
    adata = datasets.read_h5ad(path)
    X = adata.X if isinstance(adata.X, np.ndarray) else adata.X.toarray()
    X = np.nan_to_num(X.astype(np.float32))
    if counts:
        X = datasets.log_normalized(X)
    y = adata.obs[label_key].astype(str).to_numpy()
    largest = adata.obs[label_key].value_counts().index[:n_classes].astype(str)
    chosen = np.isin(y, largest)
    features = np.sort(np.argsort(-X[chosen].var(axis=0))[:n_features])
    return X[np.ix_(chosen, features)], y[chosen]


PAUL = ("paul15/paul15_240genes.h5ad", "celltype", 12)
TECH = ("pbmc_3tech/pbmc_3tech.h5ad", "cell_type", 9)
"""File, label column and number of classes, for `cells`."""
SETS: dict[str, Callable[[], Data]] = {
    "digits, 8 × 8": lambda: load_digits(return_X_y=True),
    "USPS, 8 × 8": lambda: pooled(datasets.usps(), 16, 2),
    "MNIST, 7 × 7": lambda: pooled(datasets.mnist()[0], 28, 4),
    "MNIST, 14 × 14": lambda: pooled(datasets.mnist()[0], 28, 2),
    "bone marrow, 60 genes": lambda: cells(*PAUL, 60, counts=True),
    "bone marrow, 120 genes": lambda: cells(*PAUL, 120, counts=True),
    "blood, 60 genes": lambda: cells(*TECH, 60),
    "blood, 120 genes": lambda: cells(*TECH, 120),
    "lung tumour, 184 measurements": lambda: cells("vectra_6plex/cells.h5ad", "phenotype", 8, 184),
    "a tumour, 33 measurements": lambda: cells(
        "scimap_example/example_data.h5ad", "phenotype", 12, 33
    ),
    "Landsat, 36 features": datasets.landsat,
}


OUTSIDE = {"letter": datasets.letter, "landsat": datasets.landsat, "phoneme": datasets.phoneme}


def outside(data: Data) -> Data:
    """Return the samples that the tables of experiment 2 do not use."""
    X, y = data
    rest = np.random.default_rng(0).permutation(len(y))[N_DRAWN:]
    return X[rest], y[rest]


def errors(data: Data, n_train: int, run: Run, n_test: int = N_TEST) -> list[float]:
    """Return the 5-NN error of each draw, without classes of fewer than 3 training samples."""
    X, y = data
    found = []
    for draw in range(N_DRAWS):
        order = np.random.default_rng(500 + draw).permutation(len(y))
        train, test = order[:n_train], order[n_train : n_train + n_test]
        classes, counts = np.unique(y[train], return_counts=True)
        known = classes[counts >= 3]
        train, test = (index[np.isin(y[index], known)] for index in (train, test))
        codes = np.searchsorted(known, y[train])
        decisions = run("few", X[train], codes, X[test], 0)
        found.append(float((known[decisions["knn"]] != y[test]).mean()))
    return found


def parameter(text: str) -> tuple[str, Any]:
    """Return the name and the value in ``name=value``; a value that is not Python is a string."""
    name, _, value = text.partition("=")
    try:
        return name, literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def main() -> None:
    """Print the error of each data set, and the mean over the data sets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("samples", type=int, help="number of training samples")
    parser.add_argument(
        "parameters", nargs="*", help="parameters of CentroidEncoder, such as dropout=0.2"
    )
    parser.add_argument(
        "--outside", choices=OUTSIDE, help="use only this data set, without experiment 2's samples"
    )
    parser.add_argument("--method", choices=METHODS, help="default: the centroid-encoder")
    # Parameters may come before and after the options.
    arguments = parser.parse_intermixed_args()
    if arguments.method and arguments.parameters:
        parser.error("only the centroid-encoder takes parameters; leave out --method")
    params = dict(map(parameter, arguments.parameters))
    run = METHODS[arguments.method].run if arguments.method else centroid_encoder(**params)
    sets, n_test = SETS, N_TEST
    if arguments.outside:
        n_test = N_TEST_OUTSIDE
        load_all = OUTSIDE[arguments.outside]
        sets = {f"{arguments.outside}, outside the draw": lambda: outside(load_all())}
    means = []
    for name, load in sets.items():
        found = 100 * np.array(errors(load(), arguments.samples, run, n_test))
        means.append(found.mean())
        print(f"{name}: {found.mean():.1f} ± {found.std(ddof=1):.1f} %", flush=True)
    print(f"all: {np.mean(means):.2f} %")


if __name__ == "__main__":
    main()
