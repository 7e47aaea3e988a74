"""Errors of runs, the file of results, and the tables in the documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from benchmarks import datasets, errors, render
from benchmarks.methods import METHODS, standardized
from benchmarks.protocols import EXPERIMENTS
from benchmarks.published import PUBLISHED

needs_data = pytest.mark.skipif(
    datasets.data_folder() is None, reason="the data folder is absent: set CE_DATA"
)


def test_errors_are_those_of_scikit_learn() -> None:
    row = errors.evaluate(EXPERIMENTS["iris"], METHODS["PCA"], 3)
    X, X_test, y, y_test = train_test_split(
        *load_iris(return_X_y=True), test_size=0.3, random_state=3
    )
    scaler = StandardScaler().fit(X)
    pca = PCA(2).fit(scaler.transform(X))
    train, test = (pca.transform(scaler.transform(x)) for x in (X, X_test))
    expected = 1 - KNeighborsClassifier(5).fit(train, y).score(test, y_test)
    assert float(str(row["knn_error"])) == pytest.approx(expected, abs=1e-6)
    assert (row["n_train"], row["n_test"], row["run"]) == (105, 45, 3)
    assert "decoder_error" not in row
    assert "torch 2" in str(row["versions"])


def test_pixels_have_one_scale_and_other_features_one_each() -> None:
    rng = np.random.default_rng(0)
    X, X_test = (rng.normal(3, [1, 10], size=(n, 2)) for n in (50, 20))
    z, z_test = standardized("usps", X, X_test)
    assert (z.mean(), z.std()) == (pytest.approx(0), pytest.approx(1))
    np.testing.assert_allclose(z_test, (X_test - X.mean()) / X.std())
    z, z_test = standardized("letter", X, X_test)
    np.testing.assert_allclose(z.std(axis=0), 1)
    np.testing.assert_allclose(z_test, StandardScaler().fit(X).transform(X_test))


def test_runs_in_the_file_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "errors.csv"
    call = ["errors", "iris", "--method", "PCA", "--runs", "2", "--results", str(path)]
    monkeypatch.setattr("sys.argv", call)
    errors.main()
    first = path.read_text()
    runs = [(row["method"], row["run"]) for row in errors.read_results(path)]
    assert runs == [("PCA", "0"), ("PCA", "1")]
    assert capsys.readouterr().out.count("5-NN error") == 2
    errors.main()
    assert path.read_text() == first
    assert capsys.readouterr().out.startswith("2 runs are in ")


def results(**errors_by_method: list[float]) -> pd.DataFrame:
    rows = [
        ("iris", method, run, 105, 45, error, 1.0)
        for method, found in errors_by_method.items()
        for run, error in enumerate(found)
    ]
    columns = ["experiment", "method", "run", "n_train", "n_test", "knn_error", "seconds"]
    return pd.DataFrame(rows, columns=columns)


def test_table_of_errors() -> None:
    frame = results(PCA=[0.1] * 25, LDA=[0.02, 0.04], NCA=[0.5], UMAP=[0.2] * 25)
    table = render.errors_table(frame, ["iris"])
    assert "| | Iris, paper | Iris |" in table
    # The best of the methods with the most runs is bold.
    assert "| PCA |  | **10.00**\u00a0±\u00a00.00 |" in table
    assert "| UMAP |  | 20.00\u00a0±\u00a00.00 |" in table
    assert "| LDA |  | 3.00\u00a0±\u00a01.41 (2) |" in table
    assert "| NCA |  | 50.00 (1) |" in table
    assert "| kernel supervised PCA | 5.16 |  |" in table
    assert "| centroid-encoder, the paper's recipe | 3.29 |  |" in table


def test_better_methods_are_found_in_the_runs_of_both() -> None:
    same = {"LDA": [0.3] * 5, "UMAP": [0.1] * 4, "5-NN": [0.0] * 5}
    ours = {"centroid-encoder": [0.2, 0.3, 0.25, 0.2, 0.3, 0.9]}
    frame = results(**ours, PCA=[0.1, 0.18, 0.17, 0.09, 0.21], **same)
    # PCA makes 10, 12, 8, 11 and 9 % fewer errors. The variance is 2.5, times 1 / 5 + 45 / 105.
    assert render.better_table(frame).splitlines()[2:] == [
        "| Iris | PCA | 5 | 10.00\u00a0±\u00a01.25 | 0.0013 |"
    ]
    others = frame[frame["method"] != "centroid-encoder"]
    assert render.better_table(others) == "None."


def test_a_table_is_replaced_between_its_marks() -> None:
    text = "a\n<!-- rules -->\nold\n<!-- end -->\nb\n"
    found = render.replaced(text, "rules", "new")
    assert found == "a\n<!-- rules -->\n\nnew\n\n<!-- end -->\nb\n"
    assert render.replaced(found, "rules", "new") == found
    with pytest.raises(ValueError, match="one place for 'other'"):
        render.replaced(text, "other", "new")


def test_every_published_error_has_a_method() -> None:
    names = {render.PAPER_NAME.get(name, name) for name in METHODS}
    assert {name for found in PUBLISHED.values() for name in found} <= names
    assert set(PUBLISHED) == set(EXPERIMENTS)


SIZES = {
    "mnist": (60_000, 10_000, 784),
    "usps": (8_000, 3_000, 256),
    "letter": (1_350, 150, 16),
    "landsat": (1_350, 150, 36),
    "phoneme": (1_350, 150, 20),
    "sonar": (145, 63, 60),
    "usps-1000": (700, 300, 256),
}


@needs_data
@pytest.mark.parametrize("name", SIZES)
def test_splits_have_the_sizes_of_the_paper(name: str) -> None:
    X, y, X_test, y_test = EXPERIMENTS[name].run(1)
    assert (
        (len(X), len(X_test), X.shape[1]) == (len(y), len(y_test), X_test.shape[1]) == SIZES[name]
    )
    assert set(np.unique(y_test)) <= set(np.unique(y))


@needs_data
def test_ten_folds_divide_one_draw() -> None:
    splits = list(EXPERIMENTS["phoneme"].splits(11))
    assert len(splits) == 11
    tested = np.concatenate([X_test for _, _, X_test, _ in splits[:10]])
    assert len(np.unique(tested, axis=0)) == 1500
    train = {row.tobytes() for row in splits[0][0]}
    assert not train & {row.tobytes() for row in splits[0][2]}
    with pytest.raises(StopIteration):
        next(EXPERIMENTS["phoneme"].splits(0))


def test_best_values_are_bold_in_tables_of_cells_and_pictures() -> None:
    pictures = pd.DataFrame({name: [0.3, 0.2] for name in render.PICTURE})
    pictures["method"], pictures["set"] = ["voronoi", "PCA"], "sonar"
    ours, pca = render.pictures_table(pictures).splitlines()[2:]
    # The smallest error and the largest trust are bold.
    assert ours.startswith("| centroid-encoder | 0.3 | 0.3 | **0.300** |")
    assert pca.startswith("| PCA | **0.2** | **0.2** | 0.200 |")
    errors = {"knn_error": [0.1, 0.3, 0.1, 0.1], "voronoi_error": [0.2, 0.2, 0.1, 0.1]}
    cells = pd.DataFrame(errors).assign(set="pbmc3k", method=["LDA", "LDA", "PCA", "PCA"])
    lda, pca = (
        line for line in render.cells_table(cells).splitlines() if line[2:5] in ("LDA", "PCA")
    )
    assert lda.startswith("| LDA | 20.0\u00a0±\u00a014.1 / 20.0 |")
    assert pca.startswith("| PCA | **10.0**\u00a0±\u00a00.0 / **10.0** |")
