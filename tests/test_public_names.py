"""The public names. If a name is added or removed here, the changelog needs a line."""

from __future__ import annotations

import pytest

import centroid_encoder as ce
from centroid_encoder.cli import cli

PUBLIC = {
    "": {"CentroidEncoder", "load", "pl", "read_table", "tl", "viewer"},
    "tl": {
        "write_geojson",
        *("centroid_encoder", "composition", "cross_validate", "fitted_model", "ingest", "measure"),
        *("feature_panel", "mislabeled", "misplaced", "rank_features", "suggest"),
        "telling_features",
    },
    "pl": {
        *("calibration", "confusion", "feature_panel", "history", "interactive"),
        *("permutation_test", "regions", "reliability", "voronoi"),
    },
    "viewer": {"CentroidEncoderWidget", "open"},
}
ESTIMATOR = {
    *(
        "fit",
        "fit_transform",
        "transform",
        "inverse_transform",
        "predict",
        "predict_proba",
        "predict_voronoi",
    ),
    *("calibrate", "fit_novelty", "novelty", "decoder_distances", "save", "from_recipe"),
}
# Names that tl and the viewer use. They have docstrings, but may change in any release.
ESTIMATOR_FOR_DEVELOPERS = {
    *("calibration_", "fit_codes", "fitted_map", "from_state"),
    *("set_fit_request", "set_score_request", "to_state"),
}


@pytest.mark.parametrize("part", PUBLIC)
def test_parts_offer_these_names(part: str):
    module = getattr(ce, part) if part else ce
    assert set(module.__all__) == PUBLIC[part]


def test_estimator_offers_these_names():
    bases = [base for base in ce.CentroidEncoder.__mro__ if "centroid_encoder" in base.__module__]
    own = {name for base in bases for name in vars(base) if not name.startswith("_")}
    own -= set(ce.CentroidEncoder().get_params())
    assert own == ESTIMATOR | ESTIMATOR_FOR_DEVELOPERS


def test_command_line_offers_these_commands():
    assert set(cli.commands) == {
        *("cross-validate", "feature-panel", "fit", "ingest", "measure", "plot"),
        *("misplaced", "rank-features", "suggest"),
    }
