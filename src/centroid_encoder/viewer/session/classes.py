"""The table of the shown classes: colours, numbers of cells and errors."""

from __future__ import annotations

import numpy as np
import pandas as pd

from centroid_encoder.viewer.session.session import Session


def class_table(session: Session, image: object = None) -> pd.DataFrame:
    """Return a row for each class of the map or, without a map, of the chosen labels.

    The columns are ``name``, ``color``, ``n`` (number of cells, in one `image` or in all images),
    ``error`` (held-out error by the rule in the title of the map) and ``out_of_fold``
    (cross-validated error by the same rule). An unknown error is NaN.
    """
    adata, shown, image_column = session.adata, session.shown_labels, session.catalog.image_column
    table = pd.DataFrame({"color": pd.Series(session.class_colors, dtype=object)})
    if adata is None or not len(table):
        return pd.DataFrame(columns=["name", "color", "n", "error", "out_of_fold"])
    table.insert(0, "name", table.index.map(str))
    if session.drawn is None:
        labels = adata.obs[session.corrected(shown)].astype(object)
    else:
        labels = pd.Series([*session.classes, np.nan], dtype=object).iloc[session.codes]
    if image is not None and image_column is not None:
        labels = labels[(adata.obs[image_column].astype(str) == str(image)).to_numpy()]
    counts = labels.value_counts().to_dict()
    table["n"] = [int(counts.get(name, 0)) for name in table.index]
    error, table["error"], table["out_of_fold"] = f"{session.rule[0]}_error", np.nan, np.nan
    if session.drawn is not None and (quality := session.drawn.stored.quality) is not None:
        errors = quality["per_class"][f"test_{error}"].to_numpy(float)
        table["error"] = pd.Series(errors, session.drawn.stored.classes).reindex(table.index)
    # A check of other labels has no errors of these classes.
    if session.check is not None and session.check.label_key == shown:
        errors = session.check.per_class.set_index("class")[error].astype(float)
        table["out_of_fold"] = errors.reindex(table["name"]).to_numpy()
    return table.reset_index(drop=True)
