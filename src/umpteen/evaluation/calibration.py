"""How well probabilities match reality: reliability and expected calibration error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen.errors import DataError


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predictions in bins of similar probability.

    Attributes
    ----------
    predicted : array
        The mean probability of each bin's predictions.
    true : array
        The share of them that is right.
    count : array
        How many predictions are in each bin; empty bins are left out.
    error : float
        The expected calibration error: the mean over predictions of |predicted - true| in their bin.
    """

    predicted: NDArray[np.float64]
    true: NDArray[np.float64]
    count: NDArray[np.int64]

    @property
    def error(self) -> float:
        return float(np.abs(self.predicted - self.true) @ self.count / self.count.sum())

    def to_svg(self, size: int = 320) -> str:
        """The reliability diagram: a dot per bin, as large as the bin; on the diagonal, probabilities are right."""
        pad, span = 42, size - 60

        def at(x: float, y: float) -> tuple[float, float]:
            return pad + span * x, 14 + span * (1 - y)

        grid = "".join(
            f'<text x="{at(t, 0)[0]:.1f}" y="{at(t, 0)[1] + 16:.1f}" text-anchor="middle">{t:g}</text>'
            f'<text x="{pad - 6}" y="{at(0, t)[1] + 4:.1f}" text-anchor="end">{t:g}</text>'
            for t in (0, 0.5, 1)
        )
        (x0, y0), (x1, y1) = at(0, 0), at(1, 1)
        largest = self.count.max()
        dots = "".join(
            f'<circle cx="{at(mean, right)[0]:.1f}" cy="{at(mean, right)[1]:.1f}" '
            f'r="{2.5 + 7 * (n / largest) ** 0.5:.1f}" fill="#3b82c4" fill-opacity="0.75">'
            f"<title>predicted {mean:.2f}, right {right:.2f}, {n:,} predictions</title></circle>"
            for mean, right, n in zip(self.predicted, self.true, self.count, strict=True)
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" width="{size}" height="{size}" '
            f'font-family="sans-serif" font-size="11" fill="currentColor">'
            f'<rect x="{x0}" y="{y1}" width="{span}" height="{span}" fill="none" stroke="currentColor" '
            f'stroke-opacity="0.3"/><line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="currentColor" '
            f'stroke-opacity="0.4" stroke-dasharray="4 3"/>{grid}{dots}'
            f'<text x="{pad + span / 2}" y="{size - 10}" text-anchor="middle">predicted probability</text>'
            f'<text x="12" y="{14 + span / 2}" text-anchor="middle" transform="rotate(-90 12 {14 + span / 2})">'
            f"share that is right</text></svg>"
        )


def reliability(probabilities: ArrayLike, hits: ArrayLike, bins: int = 15) -> Reliability:
    """Sorts predictions into bins of equal width.

    Parameters
    ----------
    probabilities, hits
        Two arrays of the same shape: the probability of each prediction, and whether it is right.

    Examples
    --------
    >>> round(reliability([0.9, 0.9, 0.1, 0.1], [True, True, False, False]).error, 3)
    0.1
    """
    predicted = np.asarray(probabilities, np.float64).ravel()
    right = np.asarray(hits, np.float64).ravel()
    if len(predicted) != len(right) or len(predicted) == 0:
        raise DataError(
            "probabilities and hits must have the same number of entries, at least one, but have "
            f"{len(predicted)} and {len(right)}"
        )
    if predicted.min() < 0 or predicted.max() > 1:
        wrong = predicted.max() if predicted.max() > 1 else predicted.min()
        raise DataError(f"probabilities must be in [0, 1], but one is {wrong:g}")
    bin_of = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    used = count > 0
    means = [np.bincount(bin_of, values, minlength=bins)[used] / count[used] for values in (predicted, right)]
    return Reliability(means[0], means[1], count[used])
