from . import pl as pl
from . import tl as tl
from . import viewer as viewer
from .estimator import CentroidEncoder as CentroidEncoder
from .estimator import load as load
from .tables import read_table as read_table

__version__: str
__all__: list[str]
