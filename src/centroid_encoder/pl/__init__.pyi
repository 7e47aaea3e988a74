from ._calibration import calibration as calibration
from ._confusion import confusion as confusion
from ._feature_panel import feature_panel as feature_panel
from ._history import history as history
from ._interactive import interactive as interactive
from ._permutation_test import permutation_test as permutation_test
from ._reliability import reliability as reliability
from ._voronoi import regions as regions
from ._voronoi import voronoi as voronoi

__all__: list[str]
