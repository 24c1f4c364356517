"""error = a + b n^-c, fitted to what was reached with shares of the images, and what twice the images would bring.

a is the error that no number of images takes away, c how fast the rest falls. For each c of a grid a and b are least
squares within their bounds, so a fit cannot get stuck, and a thousand of them are one matrix.

P shares, S seeds, N test images in G groups, D draws, C exponents, X places on the curve.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smallvit.console import several
from smallvit.randomness import key_of

Numbers = NDArray[np.float64]

EXPONENTS_C = np.geomspace(0.05, 2.0, 60)  # published curves of image classifiers lie between 0.07 and 1
LEAST_SHARES = 3
LEAST_SEEDS = 2  # one run of a share says nothing of what another would have reached
LEAST_GROUPS = 10  # of test images: draws of fewer say too little of others
DRAWS = 600
TELLING_WIDTH = 0.03  # an interval that is narrower says something, as does one of a third of the error that is left
MOST_IMAGES = 20_000  # test images that are drawn from; of more a part tells as much


class Law(NamedTuple):
    """D fits at once. `b` is the part of the error at `most` images that falls."""

    most: float
    a_D: Numbers
    b_D: Numbers
    c_D: Numbers

    def error(self, images_X: Numbers) -> Numbers:
        """(D, X)"""
        return np.asarray(self.a_D[:, None] + self.b_D[:, None] * (images_X / self.most) ** -self.c_D[:, None])

    @property
    def gains(self) -> Numbers:
        """What twice the images would bring."""
        return np.asarray(self.b_D * (1 - 2.0**-self.c_D))


class Measured(NamedTuple):
    """What was reached: with so many images, which of the test images each seed got wrong."""

    images_P: Numbers
    wrong_PSN: NDArray[np.bool_]
    groups_N: NDArray[np.int64] | None = None  # of the test images, where they come in groups
    chance: float = 0.0  # how often the largest class is right

    @property
    def errors(self) -> Numbers:
        return np.asarray(self.wrong_PSN.mean(2))


class Told(NamedTuple):
    law: Law  # of what was measured
    drawn: Law  # of draws of it
    error: float  # at all images, by the fit
    gain: float  # of twice the images
    interval: tuple[float, float]
    telling: bool  # whether the interval says anything
    groups: int  # of test images that were drawn; every image is one where they come in none
    learned: bool  # with all images it is right more often than chance

    def band(self, images_X: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """(X,): the fit, and the ends of its 95 % interval."""
        low_X, high_X = np.quantile(self.drawn.error(images_X), [0.025, 0.975], axis=0)
        return self.law.error(images_X)[0], low_X, high_X


def fit(images_P: Numbers, error_DP: Numbers, weight_P: Numbers) -> Law:
    """The a, b >= 0 and the exponent with the least weighted squares, for each of the D rows."""
    most = float(images_P.max())
    x_CP = (images_P / most) ** -EXPONENTS_C[:, None]
    w_P = weight_P / weight_P.sum()
    mean_x_C, mean_e_D = x_CP @ w_P, error_DP @ w_P
    var_x_C = np.maximum((x_CP - mean_x_C[:, None]) ** 2 @ w_P, 1e-12)
    cov_DC = (error_DP * w_P) @ x_CP.T - mean_e_D[:, None] * mean_x_C
    b_DC = np.maximum(cov_DC / var_x_C, 0.0)
    a_DC = mean_e_D[:, None] - b_DC * mean_x_C
    through_zero_DC = ((error_DP * w_P) @ x_CP.T) / (x_CP**2 @ w_P)  # where a would be negative
    b_DC = np.where(a_DC < 0, through_zero_DC, b_DC)
    a_DC = np.maximum(a_DC, 0.0)
    off_DCP = error_DP[:, None, :] - a_DC[..., None] - b_DC[..., None] * x_CP
    best_D = (off_DCP**2 @ w_P).argmin(1)
    rows = np.arange(len(error_DP))
    return Law(most, a_DC[rows, best_D], b_DC[rows, best_D], EXPONENTS_C[best_D])


def tell(measured: Measured, seed: int = 0) -> Told:
    """The fit with an interval over other test images, and over other seeds and other draws of the shares where there are several.

    Test images are drawn anew, whole groups where they come in groups, the same for all shares. What seeds differ by
    is pooled over the shares, for a share has few of them, and its mean moves by Student's t with the degrees of freedom of all.
    """
    images_P, error_PS = measured.images_P, measured.errors
    P, S = error_PS.shape
    total = measured.wrong_PSN.shape[-1]
    among = np.linspace(0, total - 1, min(total, MOST_IMAGES)).astype(int)  # rows stand class by class
    wrong_PN = measured.wrong_PSN[..., among].mean(1)
    groups_N = among if measured.groups_N is None else measured.groups_N[among]
    wrong_PG, images_G = _by_group(wrong_PN, groups_N)
    G = len(images_G)
    seeds = float(error_PS.var(1, ddof=1).mean()) / S if S > 1 else 0.0
    weight_P = 1 / (seeds + np.maximum(error_PS.mean(1) * (1 - error_PS.mean(1)), 1 / (G + 2)) / G)
    random = np.random.default_rng(key_of(seed, "learning curve"))
    drawn_DP = np.stack([_drawn_error(wrong_PG, images_G, random) for _ in range(DRAWS)])
    if S > 1:
        drawn_DP = drawn_DP + np.sqrt(seeds) * random.standard_t(P * (S - 1), (DRAWS, P))
    law = fit(images_P, error_PS.mean(1)[None], weight_P)
    drawn = fit(images_P, drawn_DP, weight_P)
    low, high = np.quantile(drawn.gains, [0.025, 0.975]).tolist()
    error = float(law.a_D[0] + law.b_D[0])
    right = 1 - float(error_PS[images_P.argmax()].mean())
    learned = right - 2 * (right * (1 - right) / G) ** 0.5 > measured.chance
    enough = P >= LEAST_SHARES and S >= LEAST_SEEDS and G >= LEAST_GROUPS
    narrow = high - low <= max(TELLING_WIDTH, error / 3)
    telling = enough and narrow and learned and float(law.b_D[0]) > 0
    return Told(law, drawn, error, float(law.gains[0]), (low, high), telling, G, learned)


def _by_group(wrong_PN: Numbers, groups_N: NDArray[np.int64]) -> tuple[Numbers, NDArray[np.int64]]:
    """How many images of each group are wrong, and how many it has."""
    _, group_N, images_G = np.unique(groups_N, return_inverse=True, return_counts=True)
    wrong_PG = [np.bincount(group_N, weights=wrong_N, minlength=len(images_G)) for wrong_N in wrong_PN]
    return np.array(wrong_PG, dtype=np.float64), images_G


def _drawn_error(wrong_PG: Numbers, images_G: NDArray[np.int64], random: np.random.Generator) -> Numbers:
    """With as many groups, drawn anew."""
    times_G = random.multinomial(len(images_G), np.full(len(images_G), 1 / len(images_G)))
    return np.asarray(wrong_PG @ times_G / (images_G @ times_G))


def sentence(told: Told, images: int, shares: int, seeds: int) -> str:
    """What twice the images would bring, or that it cannot be told."""
    low, high = (100 * end for end in told.interval)
    now, then = 1 - told.error, 1 - told.error + told.gain
    if shares < LEAST_SHARES:
        return f"What more images would bring cannot be told from {shares} shares: it takes {LEAST_SHARES}."
    if told.groups < LEAST_GROUPS:
        return (
            f"What more images would bring cannot be told from a test part of {several(told.groups, 'group')} (an image without "
            f"others of its group is one): it takes {LEAST_GROUPS}."
        )
    if seeds < LEAST_SEEDS:
        return (
            "What more images would bring cannot be told from one run of each share, for another would reach something else: give "
            f"--seeds {LEAST_SEEDS} or more."
        )
    if not told.learned:
        return (
            "What more images would bring cannot be told: with all of them these models are hardly right more often than the largest class "
            "is. Give them more time first (--budget, --epochs)."
        )
    if told.gain <= 0:
        return (
            "What more images would bring cannot be told: in these runs the error did not fall with more of them. More --seeds (there were "
            f"{seeds}), more time or more test images would tell."
        )
    if not told.telling:
        return (
            f"What twice the images would bring cannot be told from these runs: anything from {low:.1f} to {high:.1f} points. More "
            f"--seeds (there were {seeds}), more time or more test images would tell."
        )
    return (
        f"Twice the images ({2 * images:,} instead of {images:,} for training) would in the same time bring about {100 * told.gain:.1f} points (95% interval "
        f"{low:.1f} to {high:.1f}): on the fitted curve, from {100 * now:.1f}% to {100 * then:.1f}%."
    )
