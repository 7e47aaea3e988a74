"""Sentences about the errors of a result, and about reasons to trust them less."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder.core.quality import n_repeated
from centroid_encoder.tables import embedding_key, keys_in, names_group
from centroid_encoder.tl import _result
from centroid_encoder.tl._cells import Cells
from centroid_encoder.tl._check import listed, obs_column

FEW = 30
"""An error of fewer held-out cells says little."""
LEAST_EXPECTED = 50
"""Least number of new cells for which an error is expected."""
MAX_CLASSES = 3
POOR = 0.2
"""Classes with a larger error are named."""
SIGNIFICANT = 0.05
OFF = 0.05
"""Classes whose confidence is off by more, beyond its interval, are named."""
MAX_PLOTTED = 3
"""Most columns of an embedding for figures."""
CLUSTERING = re.compile("leiden|louvain|cluster|phenograph|k_?means|flowsom", re.IGNORECASE)
"""Names of columns with clusters."""


def summary(adata: AnnData, key: str) -> list[str]:
    """Describe how far the results under a key can be trusted, the most important facts first."""
    mapped = _result.StoredMap.read(adata, key)
    validated = _result.StoredCrossValidation.read(adata, key)
    sentences, warnings = [], []
    if mapped is not None and mapped.quality is not None:
        part = mapped.held_out
        held_out = mapped.errors(part)
        rule = "decoder" if mapped.has_decoder else "voronoi"
        sentences = ["No cell was held out of the map: its picture alone proves nothing."]
        if n := held_out["n"]:
            also = [group_words(held_out, mapped.params), f"n = {n:,}"]
            error = _error(held_out, f"{rule}_error", *filter(None, also))
            kind = f"Error for a new {mapped.params['group_key']}" if also[0] else "Held-out error"
            sentences = [f"{kind} {error}{_against(held_out)}."]
            if np.isfinite(held_out["panel_error"]):
                text = "is too small: held-out cells took part in the choice of the features."
                panels = _error(held_out, "panel_error")
                sentences = [
                    f"Cross-validated error of such feature panels {panels}. "
                    f"The held-out error of this map, {_percent(held_out[f'{rule}_error'])}, {text}"
                ]
        if mapped.errors("train")["n_unjudged"] > 0:
            sentences[0] += f" {unjudged_words(mapped.errors('train'))}."
        of_classes = mapped.quality["per_class"]
        of_test = of_classes.filter(regex=f"^class$|^{part}_").rename(
            columns=lambda name: name.removeprefix(f"{part}_")
        )
        kind = "held-out" if part == _result.TEST else "these"
        sentences += _confidences(held_out, of_test, kind)
        missing = missing_classes(of_classes, "the map takes", "train_voronoi_error")
        warnings = [f"Warning: {text}." for text in missing]
        if repeated := doubt_words(held_out)[1]:
            warnings.append(f"Warning: {repeated}.")
        if validated and (text := differing_settings(mapped, validated.params, validated.model)):
            warnings.append(
                "Warning: the map and the cross-validation are two models with different settings "
                f"(map against cross-validation): {text}."
            )
    if validated is not None:
        sentences[1:1] = _cross_validated(validated)
        warnings += [f"Warning: {text}" for text in validated.warnings]
    return sentences + warnings


def permutation_words(test: Mapping[str, Any]) -> str:
    """Return the p value as text, with a note if it is the smallest possible or not significant."""
    n, p_value = len(test["shuffled"]), test["p_value"]
    smallest = bool(np.isclose(p_value, 1 / (n + 1)))
    number = f"{n:,} permutation{'s' * (n > 1)}{', the smallest possible' * smallest}"
    text = f"p = {p_value:.2g} ({number})"
    if p_value <= SIGNIFICANT:
        return text
    return text + ("\ntoo few to tell" if smallest else "\nno better than chance")


def unjudged_words(quality: Mapping[str, Any]) -> str:
    """Describe the cells that were not judged: ``"45 cells of 1 class are not judged"``."""
    n, n_classes = int(quality["n_unjudged"]), int(quality["n_unjudged_classes"])
    text = f"{n:,} cells of {n_classes:,} classes are not judged"
    text = text if n > 1 else text.replace("cells", "cell").replace(" are ", " is ")
    return text if n_classes > 1 else text.replace("classes", "class")


def doubt_words(errors: Mapping[str, Any]) -> tuple[str, str]:
    """Return why an error of ``n`` held-out cells says little: that they are few, or repeated."""
    n, n_repeated, text = errors["n"], errors[_result.REPEATED], ""
    if n_repeated >= n / 2 > 0:
        rows = "every row occurs", f"{100 * n_repeated / n:.0f} % of the rows occur"
        text = f"{rows[n_repeated < n]} twice: the error means nothing"
    return "too few to tell" if n < FEW else "", text


def expected_words(stored: _result.StoredMap, n: int) -> str:
    """Return how many of n new cells differ from their labels; if few, how many may be wrong."""
    words, error = [], stored.params.get("expected_error", np.nan)
    if stored.compared is not None:
        words.append(compared_words(stored.params, stored.compared))
    is_known = stored.compared is not None and stored.compared["n"].sum() >= LEAST_EXPECTED
    if not is_known and n >= LEAST_EXPECTED and not np.isnan(error):
        share = f"about {100 * error:.0f} %" if error >= 0.01 else "under 1 %"
        words.append(f"{share} may be wrong")
    return ", ".join(words)


def compared_words(params: Mapping[str, Any], table: pd.DataFrame) -> str:
    """Return how many new cells got another class: ``"52 of 127 differ from cell_type"``."""
    n, n_differing = int(table["n"].sum()), int(table["n_differing"].sum())
    return f"{n_differing:,} of {n:,} differ from {params['compared_with']}"


def range_words(quality: Mapping[str, Any], error: str, unit: str = " %") -> str:
    """Return the 95 % interval of an error in per cent, ``"95 % interval 2.1 to 4.0 %"``.

    That of too few groups is not known; the text is empty if there is none for other reasons.
    """
    low, high = (100 * quality.get(f"{error}_{end}", np.nan) for end in ("low", "high"))
    if np.isfinite(low):
        return f"95 % interval {low:.1f} to {high:.1f}{unit}"
    return "95 % interval not known" if "n_groups" in quality else ""


def group_words(quality: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Return the number of groups on which errors rest, ``"6 values of 'donor'"``, if known."""
    n = quality.get("n_groups", 0)
    return f"{n:,} value{'s' * (n > 1)} of {params.get('group_key')!r}" if n else ""


def differing_settings(
    mapped: _result.StoredMap, params: Mapping[str, Any], model: str | None
) -> str:
    """Describe the settings of a map that differ from those of a cross-validation; empty if equal.

    `params` and `model` are those of `StoredCrossValidation`.
    """
    ours, theirs = dict(mapped.params), dict(params)
    # Options that were None are not stored; masks that are arrays are not stored either.
    names = ["label_key", "use_rep", "layer", "use_raw", "unlabeled_category"]
    names += sorted({"mask_var", "missing"} & set(ours) & set(theirs))
    if model is not None and mapped.model is not None:
        fitted = json.loads(mapped.model["config"])["estimator"]["params"]
        checked = json.loads(model)
        names += sorted((set(fitted) & set(checked)) - {"random_state", "device"})
        ours, theirs = ours | fitted, theirs | checked
    values = [(name, ours.get(name), theirs.get(name)) for name in names]
    return ", ".join(f"{name}={a!r} against {b!r}" for name, a, b in values if a != b)


def missing_classes(per_class: pd.DataFrame, takes: str, error: str) -> list[str]:
    """Return a warning if classes with judged cells are predicted for no cell.

    `takes` is its start: ``"the map takes"`` or the like. The column `error` is NaN for classes
    without judged cells.
    """
    is_missing = (per_class["n_predicted"] == 0) & per_class[error].notna()
    names = listed(pd.Index(per_class["class"][is_missing]))
    text = f"{takes} no cell for {names}: too few cells, or too similar to others"
    return [text] * bool(is_missing.any())


def doubts(adata: AnnData, cells: Cells, n_folds: int) -> list[str]:
    """Return warnings for a cross-validation of `cells`, which were read from `adata`."""
    labeled = cells.codes >= 0
    codes, texts = cells.codes[labeled], mixed_sources(adata, cells)
    if cells.groups is None:
        few = cells.classes[np.bincount(codes) < n_folds]
        text = f"fewer cells than folds: {listed(few)}. Their errors are those of very few cells"
    else:
        few = cells.classes[pd.Series(cells.groups[labeled]).groupby(codes).nunique() == 1]
        text = (
            f"in one group of {cells.params['group_key']!r} only: {listed(few)}. When it is held "
            "out, no training cell has this class, and its cells are not judged"
        )
    texts += [text] * bool(len(few))
    rows = np.flatnonzero(cells.kept_codes >= 0)
    groups = None if cells.groups is None else cells.groups[cells.kept][rows]
    counts = {"n": len(rows), _result.REPEATED: n_repeated(cells.X, rows, parts=groups)}
    if repeated := doubt_words(counts)[1]:
        texts.append(repeated)
    if panel := panel_errors(adata, cells, adata.obs_names[labeled]):
        texts.append(panel_words(panel))
    return texts + circular_words(adata, cells)


def circular_words(adata: AnnData, cells: Cells) -> list[str]:
    """Return warnings if the labels, or the values of held-out cells, may follow from the data."""
    labeled, label_key, texts = cells.codes >= 0, cells.params["label_key"], []
    codes, rep = cells.codes[labeled], cells.params.get("use_rep", "X")
    of_maps = map(embedding_key, keys_in(adata.obs))
    if rep != "X" and cells.names is None and (cells.X.shape[1] <= MAX_PLOTTED or rep in of_maps):
        texts.append(
            f"obsm[{rep!r}] looks like an embedding for figures: it distorts distances, and cells "
            "that are held out here helped to make it, so that the errors may be too small. Learn "
            "from X or from principal components"
        )
    names = [label_key] if CLUSTERING.search(label_key) else map(str, adata.obs.columns)
    for name in filter(CLUSTERING.search, names):
        column = adata.obs[name][labeled]
        several = column.notna().all() and column.nunique() <= len(codes) / 2
        # Labels are assumed to be names of clusters if each cluster has cells of one class only.
        if name == label_key or (
            several and pd.Series(codes).groupby(column.to_numpy()).nunique().max() == 1
        ):
            texts.append(
                f"the labels follow from the clustering {name!r}: if it was computed from these "
                "data, the errors measure agreement, not validation"
            )
            break
    return texts


def panel_errors(adata: AnnData, cells: Cells, held_out: pd.Index) -> dict[str, float]:
    """Cross-validated errors of the features of a map, if held-out cells took part in their choice.

    `cells` are those of the map, and `held_out` names its held-out cells. The result is empty if
    the features are no feature panel; the errors are NaN if it was chosen for other labels.
    """
    found = None if cells.names is None else _result.panel_of(adata, cells.names)
    if found is None or not held_out.isin(found[0].chosen_from).any():
        return {}
    errors = found[0].of_judge("map").set_index("size").loc[found[1]]
    is_same = found[0].label_key == cells.params["label_key"]
    return {
        f"panel_{name}": float(errors[name]) if is_same else np.nan
        for name in ("error", "error_low", "error_high")
    }


def panel_summary(panel: _result.StoredPanel) -> list[str]:
    """Describe the errors of the map with the panel of each size, and with all features."""
    errors = panel.of_judge("map").to_dict("records")
    n, folds = f"n = {errors[-1]['n']:,}", _result.fold_words(panel)
    *some, of_all = [f"{row['size']:,} features: error {_error(row, 'error')}." for row in errors]
    return [f"Cross-validated errors of maps ({folds}, {n}).", *some, f"All {of_all}"]


def panel_words(errors: Mapping[str, float]) -> str:
    """Return a warning for a map on a feature panel; `errors` are those of `panel_errors`."""
    error = f"; the cross-validated error of such panels is {_error(errors, 'panel_error')}"
    return (
        "the held-out cells took part in the choice of the features, a feature panel, so that "
        f"their error is too small{'' if np.isnan(errors['panel_error']) else error}"
    )


def mixed_sources(adata: AnnData, cells: Cells) -> list[str]:
    """Return a warning if there is a column of donors, images or the like, but no group_key."""
    for name in adata.obs.columns if cells.groups is None else ():
        if not names_group(name) or name == cells.params["label_key"]:
            continue
        column = obs_column(adata, name)[cells.codes >= 0]
        # Columns of measurements, of one value or of names of cells do not make groups.
        if column.dtype.kind not in "fb" and 2 <= column.nunique() <= len(column) / 2:
            return [
                f"cells of the same {name!r} are on both sides of every split; errors for a new "
                f"one are likely to be larger: pass group_key={name!r}"
            ]
    return []


def _error(quality: Mapping[str, Any], error: str, *also: str) -> str:
    """Return an error, and in brackets its interval and other texts."""
    words = [*filter(None, [range_words(quality, error)]), *also]
    return _percent(quality[error]) + (f" ({', '.join(words)})" if words else "")


def _against(quality: Mapping[str, Any]) -> str:
    largest = _percent(quality[f"{_result.LARGEST}_error"])
    if quality.get(_result.NO_BETTER):
        return f", no better than always naming the largest class ({largest})"
    return f"; always naming the largest class: {largest}"


def _cross_validated(validated: _result.StoredCrossValidation) -> list[str]:
    quality, per_class = validated.quality, validated.per_class
    rule = "decoder" if "decoder_error" in quality else "voronoi"
    error, folds = f"{rule}_error", _result.fold_words(validated)
    also = [folds, group_words(quality, validated.params), f"n = {quality['n']:,}"]
    also, spread = [*filter(None, also)], quality[f"{error}_sd"]
    of_one = " of one map" if _result.is_repeated(validated) else ""
    if np.isfinite(spread):
        also.append(f"standard deviation of the folds {_percent(spread)}")
    sentences = [
        f"Cross-validated error{of_one} {_error(quality, error, *also)}{_against(quality)}.",
        f"With equal weight for every class: {_error(quality, f'balanced_{error}')}.",
        f"With five neighbours in the map it is {_percent(quality['knn_error'])}, and with five "
        f"neighbours by all features, without a map, {_percent(quality['input_knn_error'])}.",
    ]
    if quality["n_unjudged"]:
        sentences[0] += f" {unjudged_words(quality)}: no other training cell has their class."
    if validated.levels is not None:
        levels = validated.levels[["voronoi_error", "n_classes"]].itertuples(index=False)
        shares = ", ".join(f"{_percent(share)} with {n}" for share, n in levels)
        kind = "Errors of all repeats together" if of_one else "Errors"
        text = f"{kind} at the levels of parents, by their number of names: {shares}."
        sentences.append(text)
    poor = per_class[per_class[error] > POOR].sort_values(error, ascending=False)
    if len(poor):
        names = ", ".join(
            f"{row['class']} ({100 * row[error]:.0f} % of {row['n']:,} cells wrong, "
            f"{range_words(row | {'n_groups': 0}, error)})"
            for row in poor[:MAX_CLASSES].to_dict("records")
        )
        more = f" and {len(poor) - MAX_CLASSES} more" if len(poor) > MAX_CLASSES else ""
        sentences.append(f"Least reliable: {names}{more}.")
    if validated.permutation is not None:
        words = permutation_words(validated.permutation).replace("\n", ", ")
        sentences.append(f"Probability of the own class against shuffled labels: {words}.")
    return sentences + _confidences(quality, per_class, "out-of-fold")


def _confidences(quality: Mapping[str, Any], per_class: pd.DataFrame, cells: str) -> list[str]:
    error, before = (100 * quality[name] for name in _result.CALIBRATION_ERRORS[:2])
    if not np.isfinite(error):
        return []
    interval = range_words(quality, "calibration_error", " points")
    words = f" ({interval}; before calibration {before:.1f})" if interval else ""
    text = f"The calibration error of {cells} cells is {error:.1f} points{words}."
    if quality.get("calibration_error_low") == 0:
        n = f"{quality['n']:,}"
        which = f"these {n}" if cells == "these" else f"{n} {cells}"
        text = f"No miscalibration was found in {which} cells{words}."
    sentences = [text]
    below = per_class["right_low"] - per_class["confidence"]
    beyond = np.maximum(below, per_class["confidence"] - per_class["right_high"]).fillna(-1)
    off = (per_class["confidence"] - per_class["right"]).abs()
    worst = per_class[(beyond > 0) & (off > OFF) & (per_class["n_predicted"] >= FEW)]
    if len(worst):
        row = worst.loc[off[worst.index].idxmax()]
        sentences.append(
            f"Confidences are worst for the {int(row['n_predicted']):,} cells predicted to be "
            f"{row['class']}: {100 * row['confidence']:.0f} % on average, and "
            f"{100 * row['right']:.0f} % right (95 % interval {100 * row['right_low']:.0f} to "
            f"{100 * row['right_high']:.0f} %)."
        )
    return sentences


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
