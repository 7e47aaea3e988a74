"""How a campaign counts: what became of each of its many cases."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import centroid_encoder

PACKAGE = Path(centroid_encoder.__file__).parent
SHOWN = 12
"""Bad cases that a failure tells in full."""


class Outcomes:
    """Counts of what became of the cases of one campaign.

    A case ends well (``fine``) or with an error of ours in words (``clear``). Whatever else it does
    is a fault: an error of some library (``unclear``), the end of the process (``crash``), or a
    change of something that it was not asked to change (``other``).

    Parameters
    ----------
    record
        pytest's ``record_property``; the counts are in the summary at the end of the run.
    """

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record
        self._counts: Counter[str] = Counter()
        self._faults: list[str] = []

    def count(self, outcome: str, case: str, why: str = "") -> None:
        """Count a case."""
        self._counts[outcome] += 1
        if outcome not in ("fine", "clear"):
            self._faults.append(f"{outcome}: {case}\n    {why}")

    def count_error(self, case: str, error: BaseException) -> None:
        """Count a case that has ended with an exception."""
        self.count(*judge(error, case))

    def check(self, at_most: Mapping[str, int] | None = None) -> None:
        """Assert that nothing has gone wrong in any case.

        Parameters
        ----------
        at_most
            Faults of others that nothing here can mend, and how many of them there may be.
        """
        allowed = at_most or {}
        known = [kind for kind, n in allowed.items() if self._counts[kind] <= n]
        faults = [fault for fault in self._faults if fault.partition(":")[0] not in known]
        total = sum(self._counts.values())
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in self._counts.most_common())
        self._record("campaign", f"{total:,} cases: {kinds}")
        assert not faults, f"{len(faults)} of {total}:\n" + "\n".join(faults[:SHOWN])


def judge(error: BaseException, case: str) -> tuple[str, str, str]:
    """Return the outcome, the case and the reason for an exception.

    An error is clear if it is of a kind that users may catch, if we have raised it ourselves, and
    if it is a sentence.
    """
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    words = str(error)
    kinds = (ValueError, TypeError, KeyError, OSError, RuntimeError)
    ours = last is not None and Path(last.filename).is_relative_to(PACKAGE)
    if isinstance(error, kinds) and ours and len(words.split()) > 2:
        return "clear", case, ""
    where = "" if last is None else f" at {Path(last.filename).name}:{last.lineno}"
    return "unclear", case, f"{type(error).__name__}{where}: {words[:300]}"
