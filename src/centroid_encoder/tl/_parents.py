"""Coarser classes above the classes of a map, such as the lineages of cell types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from centroid_encoder.core.arrays import Codes, Floats
from centroid_encoder.errors import check
from centroid_encoder.tl._check import check_known, entry_of
from centroid_encoder.tl._result import UNASSIGNED

Level: TypeAlias = "str | Mapping[str, str]"
Parents: TypeAlias = "Level | Sequence[Level]"


class Hierarchy:
    """The (M,) classes and their ancestors; a class without a parent has none."""

    def __init__(self, classes: pd.Index, parent_of: Mapping[Any, Any]) -> None:
        self.classes, self.parent_of = classes, dict(parent_of)
        chains = [self._chain(name) for name in classes]
        n_below = Counter(name for chain in chains for name in chain[1:])
        self.ancestors = sorted(n_below, key=n_below.__getitem__)
        """All ancestors, those of the fewest classes first."""
        steps = [[c.index(name) if name in c else -1 for name in self.ancestors] for c in chains]
        self.steps = np.array(steps, dtype=np.intp)
        """(M, A) steps from a class up to an ancestor, 0 if this is the class; −1 for no ancestor
        of the class."""
        self.members = self.steps >= 0
        """(M, A) whether a class is below an ancestor, or is the ancestor itself."""
        self.levels = self.steps.max(axis=0)
        """(A,) largest number of steps from a class up to the ancestor."""

    def _chain(self, name: Any) -> list[Any]:
        """Return a class and its ancestors, from the parent up."""
        chain = [name]
        while (parent := self.parent_of.get(chain[-1], chain[-1])) != chain[-1]:
            text = f"parents go round in a circle: {' → '.join(map(str, [*chain, parent]))}"
            check(parent not in chain, text, "parents")
            chain.append(parent)
        return chain

    def at_level(self, level: int) -> tuple[pd.Index, Codes]:
        """Names at a level, and the (M,) index of the name for each class.

        It is the highest ancestor up to this level, or the class itself.
        """
        steps = np.where(self.levels <= level, self.steps, 0)
        highest = np.array(self.ancestors, dtype=object)[steps.argmax(axis=1)]
        codes, names = pd.factorize(np.where(steps.max(axis=1) > 0, highest, self.classes))
        return pd.Index(names), codes

    def lowest(self, probabilities: Floats, least: float) -> Codes:
        """(n,) lowest ancestor with at least a probability, for (n, M) of the classes; −1 if none.

        The lowest one has the fewest classes; of equal ones it is the more probable.
        """
        shares = probabilities @ self.members
        order = np.where(shares >= least, shares - 2.0 * self.members.sum(axis=0), -np.inf)
        return np.where(np.isfinite(order.max(axis=1)), order.argmax(axis=1), -1)


def read_parents(
    parents: Parents | None, classes: pd.Index, obs: pd.DataFrame | None, label_key: str | None
) -> Hierarchy | None:
    """Return the hierarchy of a parameter `parents`: columns of `obs`, mappings, or a list of them.

    Raises an InputError for unknown names, for a child with two parents, and for a circle.
    """
    if parents is None:
        return None
    is_one = isinstance(parents, str | Mapping | pd.Series)
    fits = is_one or (np.iterable(parents) and len(parents) > 0)
    check(fits, f"parents must be columns or mappings; got {parents!r}", "parents")
    given, found = [parents] if is_one else list(parents), dict[Any, Any]()
    below: Any = label_key
    known = list(classes)
    for level in given:
        if isinstance(level, Mapping | pd.Series):
            pairs = [(child, parent) for child, parent in level.items() if not pd.isna(parent)]
            known += [parent for _, parent in pairs]
            for child, _ in pairs:
                check_known(child, known, f"parents has {child!r}, which is no class", "parents")
        else:
            text = "the reference has no cells with labels; pass a mapping from classes to parents"
            check(obs is not None and below in obs, text, "parents")
            assert obs is not None
            column = entry_of(obs, level, "obs", "parents", "column ")
            of_both = pd.DataFrame({"child": obs[below], "parent": column}).astype(object).dropna()
            of_both = of_both.drop_duplicates()
            pairs = list(of_both[of_both["child"].isin(known)].itertuples(index=False))
            known += list(of_both["parent"])
            below = level
        for child, parent in pairs:
            # A class may be alone in a lineage of the same name.
            other = parent if child == parent else found.setdefault(child, parent)
            text = f"{child!r} is under two parents, {other!r} and {parent!r}; each class needs one"
            check(other == parent, text, "parents")
    text = "parents needs names that are text: convert the classes and the parents to strings"
    check(all(isinstance(x, str) for x in (*classes, *found, *found.values())), text, "parents")
    text = f"a parent must not be called {UNASSIGNED!r}"
    check(UNASSIGNED not in found.values(), text, "parents")
    has_parent = any(found.get(name, name) != name for name in classes)
    check(has_parent, "parents holds no parent of a class of the map", "parents")
    return Hierarchy(classes, found)


def mixed_colors(
    hierarchy: Hierarchy, names: Sequence[Any], classes: pd.Index, colors: Sequence[str]
) -> list[str]:
    """Return for ancestors the mean colours of their classes, in RGB."""
    from matplotlib.colors import to_hex, to_rgb

    of_class = dict(zip(classes, (to_rgb(color) for color in colors), strict=False))
    own = np.array([of_class[name] for name in hierarchy.classes])
    members = hierarchy.members[:, [hierarchy.ancestors.index(name) for name in names]]
    return [to_hex(own[below].mean(axis=0)) for below in members.T]
