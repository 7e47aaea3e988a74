"""Write tables of the results into docs/benchmarks.md and docs/labelling.md.

    python -m benchmarks.render
    python -m benchmarks.render --errors mine.csv   # tables of errors from another file

The results are in benchmarks/results. In the documents, a table lies between the comments
``<!-- name -->`` and ``<!-- end -->``. The text between these marks is replaced, and the rest of
the document is not changed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks import ablation, annotators, doubts, gpu, labels, placement
from benchmarks.cell_sets import SETS as CELL_SETS
from benchmarks.cells import RESULTS as CELL_RESULTS
from benchmarks.cells import SHOWN
from benchmarks.methods import METHODS, Method
from benchmarks.protocols import EXPERIMENTS
from benchmarks.published import PUBLISHED

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "errors.csv"
ABLATION_RESULTS = ROOT / "benchmarks" / "results" / "ablation.csv"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
LABELLING = ROOT / "docs" / "labelling.md"

TABLES: dict[str, tuple[str, ...]] = {
    "experiment 1": ("mnist", "usps"),
    "experiment 2": ("letter", "landsat", "phoneme"),
    "experiment 3": ("iris", "sonar", "usps-1000"),
}
"""Tables of errors, and their experiments."""
RULES = ("knn", "voronoi", "decoder")
OURS = "centroid-encoder"
BOTH = (OURS, "centroid-encoder, bottleneck")
"""Methods of `rules_table`, one for each placement."""
PICTURES = [name for name, method in METHODS.items() if "full input space" not in method.kind]
"""Methods with an embedding."""
PAPER_NAME = {
    "centroid-encoder, the paper's recipe": "centroid-encoder (paper)",
    "centroid-encoder, the paper's recipe, not pre-trained": (
        "centroid-encoder (paper, not pre-trained)"
    ),
}
"""Names in `PUBLISHED` of the methods whose names differ there."""


def paper_table(results: pd.DataFrame) -> str:
    """Return a table of the paper's errors, and those of its recipe and of the default here."""
    recipe = "centroid-encoder, the paper's recipe"
    columns = recipe, f"{recipe}, not pre-trained", OURS
    lines = [
        "| | paper | its recipe here | paper, not pre-trained | here | the default here |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, experiment in EXPERIMENTS.items():
        here = [measured(results, METHODS[column], name, np.nan) for column in columns]
        found = [PUBLISHED[name].get(PAPER_NAME.get(column, column)) for column in columns]
        paper = ["" if error is None else f"{error:.2f}" for error in found]
        cells = paper[0], here[0], paper[1], here[1], here[2]
        lines.append(f"| {experiment.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def errors_table(results: pd.DataFrame, experiments: Sequence[str]) -> str:
    """Return a table with a row for each method and two columns for each experiment."""
    titles = [EXPERIMENTS[name].title for name in experiments]
    columns = [column for title in titles for column in (f"{title}, paper", title)]
    lines = [
        f"| | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    best = {name: best_in_the_plane(results, name) for name in experiments}
    for method in METHODS.values():
        cells = []
        for name in experiments:
            published = PUBLISHED[name].get(PAPER_NAME.get(method.name, method.name))
            cells.append("" if published is None else f"{published:.2f}")
            cells.append(measured(results, method, name, best[name]))
        if set(cells) - {"", "–"}:
            lines.append(f"| {method.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def best_in_the_plane(results: pd.DataFrame, experiment: str) -> float:
    """Return the smallest mean error of the methods with an embedding and the most runs."""
    rows = results[(results["experiment"] == experiment) & results["method"].isin(PICTURES)]
    found = rows.groupby("method")["knn_error"].agg(["mean", "size"])
    return float(found[found["size"] == found["size"].max()]["mean"].min())


def measured(results: pd.DataFrame, method: Method, experiment: str, best: float) -> str:
    """Return mean and standard deviation of 5-NN errors in percent, in bold if it is the best.

    The number of runs follows in parentheses if it differs from that of the paper. A dash marks an
    experiment that the method is not run on.
    """
    rows = results[(results["experiment"] == experiment) & (results["method"] == method.name)]
    if not len(rows):
        return "–" if experiment in method.missing else ""
    mean = rows["knn_error"].mean()
    text = f"{100 * mean:.2f}"
    if np.isclose(mean, best):
        text = f"**{text}**"
    if len(rows) > 1:
        text += f"\u00a0±\u00a0{100 * rows['knn_error'].std(ddof=1):.2f}"
    n_runs = EXPERIMENTS[experiment].n_runs
    return text if len(rows) == n_runs else f"{text} ({len(rows)})"


def rules_table(results: pd.DataFrame) -> str:
    """Return a table with the three errors of the centroid-encoder for both placements."""
    lines = [
        "| | placement | runs | 5-NN | Voronoi | decoder | Voronoi : 5-NN |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, experiment in EXPERIMENTS.items():
        for method, kind in zip(BOTH, ("voronoi", "bottleneck"), strict=True):
            rows = results[(results["experiment"] == name) & (results["method"] == method)]
            if not len(rows):
                continue
            knn, voronoi, decoder = (100 * rows[f"{rule}_error"].mean() for rule in RULES)
            # The placement "voronoi" has no decoder; it decides by the Voronoi cells.
            decided = f"{decoder:.2f}" if kind == "bottleneck" else ""
            lines.append(
                f"| {experiment.title} | {kind} | {len(rows)} | {knn:.2f} | {voronoi:.2f} | "
                f"{decided} | {voronoi / knn:.2f} |"
            )
    return "\n".join(lines)


def better_table(results: pd.DataFrame) -> str:
    """Return a table of the methods that make fewer errors than the default, with p < 0.05.

    Only runs of both methods are compared, and there must be at least five of them.
    """
    lines = ["| | method | runs | fewer errors, points | p |", "|---|---|---:|---:|---:|"]
    for name, experiment in EXPERIMENTS.items():
        errors, share = runs_of(results, name)
        others = errors.columns.intersection(PICTURES).drop(OURS, errors="ignore")
        for method in others if OURS in errors else ():
            gain, error, p, n = compared(errors[OURS], errors[method], share)
            if n >= 5 and gain > 0 and p < 0.05:
                difference = f"{gain:.2f}\u00a0±\u00a0{error:.2f}"
                lines.append(f"| {experiment.title} | {method} | {n} | {difference} | {p:.2g} |")
    return "\n".join(lines) if len(lines) > 2 else "None."


def runs_of(results: pd.DataFrame, experiment: str) -> tuple[pd.DataFrame, float]:
    """Return the 5-NN errors in percent by run and method, and test samples for each training one.

    The errors are those of methods with an embedding.
    """
    rows = results[(results["experiment"] == experiment) & results["method"].isin(PICTURES)]
    errors = 100 * rows.pivot(index="run", columns="method", values="knn_error")
    return errors, float((rows["n_test"] / rows["n_train"]).mean())


def compared(errors: pd.Series, others: pd.Series, share: float) -> tuple[float, float, float, int]:
    """Return the mean difference over the runs of both, its standard error, p, and their number.

    The standard error and the paired t-test take into account that the runs share samples: `share`
    is the number of test samples for each training sample (Nadeau & Bengio 2003).
    """
    difference = (errors - others).dropna()
    n, mean = len(difference), float(difference.mean())
    error = float(np.sqrt((1 / max(n, 1) + share) * difference.var()))
    return mean, error, float(2 * stats.t.sf(abs(mean) / error, n - 1)) if n > 1 else 1.0, n


def best_other_table(results: pd.DataFrame) -> str:
    """Return a table that compares our methods with the best other method of each experiment.

    The best other is the method with an embedding that has the smallest mean error over at least
    a third of the runs.
    """
    lines = [
        "| | method | error | best other method | its error | runs | difference | p |",
        "|---|---|---:|---|---:|---:|---:|---:|",
    ]
    for name, experiment in EXPERIMENTS.items():
        errors, share = runs_of(results, name)
        means = errors.mean()[3 * errors.count() >= experiment.n_runs]
        best = means[[method for method in means.index if not method.startswith(OURS)]].idxmin()
        for method in (*BOTH, "centroid-encoder, the paper's recipe"):
            difference, error, p, n = compared(errors[method], errors[best], share)
            lines.append(
                f"| {experiment.title} | {method} | {errors[method].mean():.2f} | {best} | "
                f"{means[best]:.2f} | {n} | {difference:+.2f}\u00a0±\u00a0{error:.2f} | {p:.2g} |"
            )
    return "\n".join(lines)


def steps_table(results: pd.DataFrame) -> str:
    """Return a table of the 5-NN and Voronoi errors on the way from the paper to the default.

    The last column has the mean differences to the row above over all runs, with their standard
    errors.
    """
    titles = [*(EXPERIMENTS[name].title for name in ablation.IN_STEPS), "difference"]
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    rules = [f"{rule}_error" for rule in ("knn", "voronoi")]
    by_run = 100 * results.set_index(["method", "experiment", "run"])[rules]
    before: pd.DataFrame | None = None
    for step in ablation.STEPS:
        errors = by_run.loc[step]
        means = errors.groupby("experiment").mean()
        cells = [" / ".join(f"{error:.1f}" for error in means.loc[n]) for n in ablation.IN_STEPS]
        gains = [] if before is None else [(errors - before)[rule].dropna() for rule in rules]
        cells.append(
            " / ".join(f"{gain.mean():+.1f}\u00a0±\u00a0{gain.sem():.1f}" for gain in gains)
        )
        lines.append(f"| {step} | {' | '.join(cells)} |")
        before = errors
    return "\n".join(lines)


def doubts_table(results: pd.DataFrame) -> str:
    """Return a table with the shares of cells above the documented threshold of novelty.

    Doublets are left out, and queries whose values are not log-normalised.
    """
    lines = [
        "| | query | warned | AUROC | could be flagged | unknown | known |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    left_out = results["condition"].isin([*doubts.OTHER_VALUES, "doublets"])
    for row in results[~left_out].to_dict("records"):
        bold = "" if row["set"] == "develop" else "**"
        lines.append(
            f"| {bold}{row['pair']}{bold} | {row['condition']} | "
            f"{'yes' if row['shifted'] else ''} | {row['auroc']:.2f} | "
            f"{100 * row['possible']:.0f} | "
            f"{100 * row[f'unknown_above_{doubts.DOCUMENTED}']:.0f} | "
            f"{100 * row[f'known_above_{doubts.DOCUMENTED}']:.0f} |"
        )
    return "\n".join(lines)


PICTURE = {
    "neighbours": ("5-NN, %", 1, min),
    "cells": ("Voronoi, %", 1, min),
    "trust": ("trust", 3, max),
    "continuity": ("continuity", 3, max),
    "trust within": ("trust within", 3, max),
    "continuity within": ("continuity within", 3, max),
    "border": ("border", 2, min),
    "order": ("order", 2, max),
    "edge": ("edge", 2, min),
    "area": ("area", 2, max),
    "seconds": ("seconds", 1, min),
}
"""Heading, number of decimals, and ``min`` or ``max`` for the best value of each measure.

The measures are those of `benchmarks.placement`.
"""


def pictures_table(results: pd.DataFrame) -> str:
    """Return a table of the measures of embeddings, as means over the data sets of a method.

    The best value among the methods that ran on all data sets is bold.
    """
    of_sets = results.groupby(["method", "set"])[list(PICTURE)].mean()
    means, n_sets = of_sets.groupby("method").mean(), of_sets.groupby("method").size()
    whole = means[n_sets == n_sets.max()]
    lines = [
        f"| | {' | '.join(heading for heading, *_ in PICTURE.values())} |",
        f"|---|{'---:|' * len(PICTURE)}",
    ]
    for method in [name for name in placement.EVERY if name in means.index]:
        cells = []
        for column, (_, digits, better) in PICTURE.items():
            value = means.loc[method, column]
            text = f"{value:.{digits}f}"
            is_best = method in whole.index and value == better(whole[column])
            cells.append(f"**{text}**" if is_best else text)
        lines.append(f"| {placement.TITLES.get(method, method)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cells_table(results: pd.DataFrame) -> str:
    """Return a table of the 5-NN and Voronoi errors of held-out cells.

    The best errors of methods with a two-dimensional embedding are bold. Other methods have one
    error.
    """
    lines = [f"| | {' | '.join(CELL_SETS)} |", f"|---|{'---:|' * len(CELL_SETS)}"]
    errors = 100 * results.groupby(["method", "set"])[["knn_error", "voronoi_error"]].mean()
    spread = 100 * results.groupby(["method", "set"])["knn_error"].std()
    planes = (*SHOWN, *annotators.ROWS[:2])
    least = errors[errors.index.get_level_values("method").isin(planes)].groupby("set").min()
    for method in (*SHOWN, *annotators.ROWS):
        shown = []
        for name in CELL_SETS:
            if (method, name) not in errors.index:
                shown.append("")
                continue
            texts = []
            for rule in errors if method in planes else ("knn_error",):
                value = errors.loc[(method, name), rule]
                text = f"{value:.1f}"
                is_best = method in planes and np.isclose(value, least.loc[name, rule])
                texts.append(f"**{text}**" if is_best else text)
            texts[0] += f"\u00a0±\u00a0{spread[method, name]:.1f}"
            shown.append(" / ".join(texts))
        lines.append(f"| {method} | {' | '.join(shown)} |")
    return "\n".join(lines)


def labels_table(results: pd.DataFrame, wrong: float) -> str:
    """Return a table of errors by number of labels, for runs with a share of wrong labels.

    The last column has the number of labels with which the mean error over the splits reaches the
    mean error of the reference: `labels.REFERENCE` cells that are chosen at random.
    """
    budgets = (100, 250, 500)
    heads = " | ".join(f"{n} labels: error / balanced" for n in budgets)
    goal_head = f"{labels.REFERENCE:,} random labels: error | labels needed for this error"
    lines = [
        f"| data set | method | {heads} | {goal_head} |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    results = results[results["wrong"] == wrong]
    for name in labels.SETS:
        of_set = results[results["set"] == name]
        goals = of_set[of_set["labels"] == labels.REFERENCE].set_index("split")["error"]
        for method in labels.METHODS:
            runs = of_set[of_set["method"] == method]
            if not len(runs):
                continue
            means = 100 * runs.groupby("labels")[["error", "balanced_error"]].mean()
            shown = [
                f"{means.loc[n, 'error']:.1f} / {means.loc[n, 'balanced_error']:.1f}"
                for n in budgets
            ]
            curve = runs.groupby("labels")["error"].mean()
            enough = labels.needed(curve, float(goals.mean()))
            text = f"more than {budgets[-1]}" if np.isnan(enough) else f"{enough:.0f}"
            goal = f"{100 * goals.mean():.1f}" if method == labels.METHODS[0] else ""
            first = name if method == labels.METHODS[0] else ""
            lines.append(f"| {first} | {method} | {' | '.join(shown)} | {goal} | {text} |")
    return "\n".join(lines)


def gpu_table(results: pd.DataFrame) -> str:
    """Return a table with seconds, share of the peak rate and error of trainings in float32."""
    lines = [
        "| | placement | steps | an epoch, s | training, s | of the peak | error |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for row in results[results["precision"] == "float32"].to_dict("records"):
        error = "" if np.isnan(row["error"]) else f"{100 * row['error']:.2f} %"
        lines.append(
            f"| {row['data']}, {row['samples']:,} | {row['placement']} | "
            f"{row['steps']} | {row['epoch_seconds']:.3f} | {row['training_seconds']:.1f} | "
            f"{100 * row['share_of_peak']:.1f} % | {error} |"
        )
    [device], [versions] = results["device"].unique(), results["versions"].unique()
    return "\n".join([f"{device}; {versions}.", "", *lines])


def missing_list() -> str:
    """Return a list of the reasons why methods are not run on an experiment."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for method in METHODS.values():
        for name, reason in method.missing.items():
            reasons.setdefault((EXPERIMENTS[name].title, reason), []).append(method.name)
    # One line for experiments that lack the same methods for the same reason.
    lines: dict[tuple[str, str], list[str]] = {}
    for (title, reason), names in reasons.items():
        lines.setdefault((reason, "; ".join(names)), []).append(title)
    return "\n".join(f"- {', '.join(lines[key])}: {key[0]}. {key[1]}." for key in lines)


def replaced(text: str, name: str, table: str) -> str:
    """Replace a table of a page; raise ValueError unless the page has its marks once."""
    pattern = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)"
    new, n = re.subn(pattern, lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text, flags=re.S)
    if n != 1:
        raise ValueError(f"the page must have one place for {name!r}; it has {n}")
    return new


def main() -> None:
    """Write all tables into the documents."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--errors", type=Path, default=RESULTS, help="CSV file of errors")
    results = pd.read_csv(parser.parse_args().errors)
    text = DOCUMENT.read_text()
    text = replaced(text, "paper", paper_table(results))
    for name, experiments in TABLES.items():
        text = replaced(text, name, errors_table(results, experiments))
    text = replaced(text, "rules", rules_table(results))
    text = replaced(text, "best other", best_other_table(results))
    text = replaced(text, "better", better_table(results))
    text = replaced(text, "ablation", steps_table(pd.read_csv(ABLATION_RESULTS)))
    text = replaced(text, "gpu", gpu_table(pd.read_csv(gpu.RESULTS)))
    text = replaced(text, "cells", cells_table(pd.read_csv(CELL_RESULTS)))
    text = replaced(text, "pictures", pictures_table(pd.read_csv(placement.RESULTS)))
    text = replaced(text, "doubts", doubts_table(pd.read_csv(doubts.RESULTS)))
    text = replaced(text, "missing", missing_list())
    DOCUMENT.write_text(text)
    text, found = LABELLING.read_text(), pd.read_csv(labels.RESULTS)
    for wrong, name in ((0.0, "labels"), (0.1, "wrong labels")):
        text = replaced(text, name, labels_table(found, wrong))
    LABELLING.write_text(text)


if __name__ == "__main__":
    main()
