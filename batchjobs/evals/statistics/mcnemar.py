"""McNemar's test, exact: of the items that changed, did more break than a fair coin would break?"""

from __future__ import annotations

from scipy.special import bdtr


def worse(fixed: int, broken: int) -> float:
    """One-sided p: as many broken or more, of as many flips. 1 without a flip, where the usual χ²
    has none: a perfect night must not alarm."""
    return float(bdtr(fixed, fixed + broken, 0.5))
