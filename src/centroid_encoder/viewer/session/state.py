"""What one widget shows: values that are never changed, only replaced."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.tl._result import Regions, Result, StoredCrossValidation
from centroid_encoder.viewer.data.tables import Table
from centroid_encoder.viewer.session.groups import Group
from centroid_encoder.viewer.session.labeling import Labeling
from centroid_encoder.viewer.session.planes import Plane
from centroid_encoder.viewer.session.provenance import Call

if TYPE_CHECKING:
    from centroid_encoder.core.reports import Frame
    from centroid_encoder.tl._centroid_encoder import Training

Kind = Literal["info", "warning", "error"]
Mode = Literal["Explore", "Label", "Review", "New data"]
LABEL = "label"
"""Cells are coloured by their labels."""
CONTENT = ("cells", "columns", "result", "draft", "check", "labels", "label_key", "labeling")
"""The parts of a state that come from the table, or decide which of its labels are shown."""


class Version:
    """Stands for values that code of the user can change in place."""


@dataclass(frozen=True, eq=False)
class State:
    """The choices of the user, and what was read for them.

    Two states have the same part if they hold the same object: compare parts with ``is``.
    """

    table: Table | None = None
    """The table that is chosen."""
    cells: Version = field(default_factory=Version)
    """The cells of this table: their number, names and order."""
    tables: Version = field(default_factory=Version)
    """The tables and layers to choose from."""
    links: Version = field(default_factory=Version)
    """The joins of the table with layers."""
    looks: Version = field(default_factory=Version)
    """The images that are shown, and their looks."""
    columns: Version = field(default_factory=Version)
    """The columns of the table."""
    labels: Version = field(default_factory=Version)
    """The labels of the cells, and the names and colours of the classes."""
    label_key: str | None = None
    """The label column that is chosen; it may have been deleted since."""
    key: str = "ce"
    """Name of the results: ``uns[key]``, ``obs[f"{key}_…"]``."""
    result: Result | None = None
    """The stored map under that name."""
    check: StoredCrossValidation | None = None
    """The stored cross-validation under that name."""
    labeling: Labeling | None = None
    """Labels that are given by hand now."""
    draft: AnnData | None = None
    """The live map of these labels, or a first map, under the key ``"ce"``, in an AnnData that
    shares the matrix with the table."""
    draft_result: Result | None = None
    """That map."""
    frame: tuple[Training, Frame, str] | None = None
    """The `Training` of the table that runs, its live `Frame` and its label column; None before the
    first frame, and once the result was read."""
    plane: Plane | None = None
    """A picture without labels that is drawn in place of the map."""
    components: NDArray[np.floating] | None = None
    """(n_obs, 2) first principal components, once they were computed."""
    regions: Regions | None = "voronoi"
    """Kind of regions that the map shows."""
    coloring: str | tuple[str, str] = LABEL
    """What the colours of the cells mean: one of `colorings.offered`, or ``("", name)`` for a
    column or a variable."""
    hidden: frozenset[str] = frozenset()
    """Names of the classes that the map does not show."""
    group: Group = field(default_factory=lambda: Group(np.zeros(0, dtype=bool), ""))
    """The selected cells, and how they were selected."""
    parts: tuple[Group, ...] = ()
    """The classes of these cells if they were selected by class."""
    zoomed: Group | None = None
    """The selected cells to which the camera is to move."""
    lasso: bool = False
    """Whether the user draws around cells in the image."""
    mode: Mode = "Explore"
    """The card below the map."""
    message: tuple[str | Exception, Kind] = "", "info"
    """A text or an exception to show; an error ended an action of the user."""
    running: Call | None = None
    """The call of `tl` that runs, or None."""
    written: Call | None = None
    """The call of `tl` whose result was written and shown last."""

    @property
    def adata(self) -> AnnData | None:
        """The AnnData of the table that is chosen."""
        return None if self.table is None else self.table.adata

    @property
    def selected(self) -> NDArray[np.bool_]:
        """(n_obs,) mask of the selected cells."""
        return self.group.rows

    @property
    def drawn(self) -> Result | None:
        """The map that is drawn: the live map, or the stored one."""
        return self.result if self.draft_result is None else self.draft_result

    @property
    def drawn_adata(self) -> AnnData | None:
        """The AnnData that holds that map."""
        return self.adata if self.draft is None else self.draft

    def differs(self, other: State, *parts: str) -> bool:
        """Return whether one of some parts is another object than in another state."""
        return any(getattr(self, part) is not getattr(other, part) for part in parts)
