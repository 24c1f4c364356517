"""Two simple classifiers of vectors, in torch: as scikit-learn has them, without the two seconds that importing it takes.

N images to learn from, M to answer, D numbers each, K classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from smallvit.evaluation.blocks import rows_at_once

FLAT = 1e-4  # the largest slope with which the regression is done
REMEMBERED = 10  # steps of L-BFGS


def neighbours_answers(x_ND: Tensor, labels_N: Tensor, asked_MD: Tensor, k: int) -> Tensor:
    """(M): the class that most of the k nearest vote for, near ones with more weight."""
    classes = int(labels_N.max()) + 1
    answers = []
    for some_BD in asked_MD.split(rows_at_once(max(classes, len(x_ND), k * x_ND.shape[1]))):
        near_Bk = torch.cdist(some_BD, x_ND).topk(k, largest=False).indices
        # Between images that are alike the quick distances above are not exact, and exact ones decide over zero.
        far_Bk = (x_ND[near_Bk] - some_BD[:, None]).norm(dim=2)
        same_Bk = far_Bk == 0
        votes_Bk = torch.where(same_Bk.any(1, keepdim=True), same_Bk.float(), 1 / far_Bk)
        scores_BK = torch.zeros(len(some_BD), classes).scatter_add_(1, labels_N[near_Bk], votes_Bk)
        answers.append(scores_BK.argmax(1))
    return torch.cat(answers)


def logistic_answers(x_ND: Tensor, labels_N: Tensor, asked_MD: Tensor, strength: float, rounds: int) -> Tensor:
    """(M): by a logistic regression with L2 regularisation (C = `strength`), after so many rounds of L-BFGS at most."""
    classes_K, targets_N = labels_N.unique(return_inverse=True)
    weights_KD = torch.zeros(len(classes_K), x_ND.shape[1], requires_grad=True)
    bias_K = torch.zeros(len(classes_K), requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights_KD, bias_K],
        max_iter=rounds,
        tolerance_grad=FLAT,
        history_size=REMEMBERED,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        fit = F.cross_entropy(F.linear(x_ND, weights_KD, bias_K), targets_N)
        whole = fit + weights_KD.square().sum() / (2 * strength * len(x_ND))
        whole.backward()
        return whole

    with torch.enable_grad():
        optimizer.step(loss)
    with torch.no_grad():
        blocks = asked_MD.split(rows_at_once(len(classes_K)))
        return torch.cat([classes_K[F.linear(some_BD, weights_KD, bias_K).argmax(1)] for some_BD in blocks])
