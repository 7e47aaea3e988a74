"""What is written above a panel."""

from __future__ import annotations

from centroid_encoder.tl._stored import QUERY, Result


def panel_title(result: Result, panel: str) -> str:
    """What a panel shows, and for held-out cells how much of it is right."""
    if panel == QUERY:
        query = (result.split == QUERY).to_numpy()
        n_unassigned = int((query & (result.codes < 0)).sum())
        also = f", {n_unassigned:,} unassigned" if n_unassigned else ""
        return f"query cells (n = {int(query.sum()):,}{also})"
    errors = result.stored["quality"][panel]
    n = f"n = {errors['n']:,}"
    shown = int((result.split == panel).sum())
    if shown != errors["n"]:
        # A selection of cells; what was counted on all of them still stands.
        n += f", {shown:,} shown"
    if panel == "train":
        return f"training cells ({n})"
    text = f"held-out 5-NN error {_percent(errors['knn_error'])} ({n})"
    if errors["at_chance"]:
        text += f"\nno better than chance ({_percent(errors['chance_error'])})"
    return text


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
