from ._centroid_encoder import centroid_encoder as centroid_encoder
from ._composition import composition as composition
from ._cross_validate import cross_validate as cross_validate
from ._feature_panel import feature_panel as feature_panel
from ._fitted_model import fitted_model as fitted_model
from ._geojson import write_geojson as write_geojson
from ._ingest import ingest as ingest
from ._measure import measure as measure
from ._mislabeled import mislabeled as mislabeled
from ._misplaced import misplaced as misplaced
from ._rank_features import rank_features as rank_features
from ._suggest import suggest as suggest
from ._telling_features import telling_features as telling_features

__all__: list[str]
