"""Dense relative localization: the authors' numbers, the geometry of pairs, the weight's course, refusals, training.

Whose numbers they are: golden/README.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

import smallvit
from helpers import GOLDEN
from smallvit.errors import UsageError
from smallvit.evaluation.model_file import read_tensors
from smallvit.models.features import create_backbone
from smallvit.objectives import DenseRelativeLocalization, TaskInfo, auxiliaries
from smallvit.objectives.base import options_of
from smallvit.objectives.drloc import (
    DrlocOptions,
    chance_error,
    draw_pairs,
    localization_loss,
    pooled,
    true_distances,
    weight_at,
)
from smallvit.planning.choices import Choices
from smallvit.planning.plan import make_plan, show_plan
from smallvit.types import Batch, Context, Features, Seen

SEVEN = (7, 7)


@pytest.fixture(scope="module")
def golden() -> tuple[dict[str, Tensor], dict[str, float]]:
    with safe_open(GOLDEN / "drloc.safetensors", "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return tensors, {key.removeprefix("losses/drloc_"): float(value) for key, value in file.metadata().items()}


def cells(tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The fixture's pairs, (row, column) each, as cell numbers."""
    first, second = ((tensors[key][..., 0] * 7 + tensors[key][..., 1]).long() for key in ("px", "py"))
    return first, second


# ---- against the authors' code -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signed", "target", "name"),
    [
        (False, "raw", "l1_abs_raw"),
        (False, "over_k1", "l1_abs_norm_(H-1)"),
        (True, "raw", "l1_signed_shift_raw"),
        (True, "over_k1", "l1_signed_shift_norm"),
        (False, "over_k", "l1_paper_abs_over_k"),
    ],
)
def test_l1_losses_of_the_authors(golden: Any, signed: bool, target: Any, name: str) -> None:
    tensors, losses = golden
    index = true_distances(*cells(tensors), SEVEN, signed).flatten(0, 1)
    found = localization_loss(list(tensors["pred"].unbind(1)), index, SEVEN, "l1", signed, target)
    assert float(found) == pytest.approx(losses[name], rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "signed", "name"),
    [
        ("ce", False, "ce_abs"),
        ("ce", True, "ce_signed"),
        ("cbr", False, "cbr_abs"),
        ("cbr", True, "cbr_signed"),
        ("cbr_mse", False, "cbr_mse_abs"),
    ],
)
def test_losses_over_distances_as_classes(golden: Any, kind: Any, signed: bool, name: str) -> None:
    tensors, losses = golden
    index = true_distances(*cells(tensors), SEVEN, signed).flatten(0, 1)
    scores = tensors["logits13" if signed else "logits7"].unbind(2)
    assert float(localization_loss(list(scores), index, SEVEN, kind, signed)) == pytest.approx(losses[name], rel=1e-6)


def test_equations_1_and_2_of_the_paper(golden: Any) -> None:
    """Distances over k, both axes summed: 0.874337 as a mean over the two images, 1.748674 as their sum."""
    tensors, _ = golden
    index = true_distances(*cells(tensors), SEVEN, signed=False).flatten(0, 1)
    found = localization_loss(list(tensors["pred"].unbind(1)), index, SEVEN, target="paper")
    assert float(found) == pytest.approx(0.874337, abs=2e-6)
    assert 2 * float(found) == pytest.approx(1.748674, abs=3e-6)


def test_what_the_head_sees(golden: Any) -> None:
    """The features of the first cell, then of the second, image after image."""
    tensors, _ = golden
    head = DenseRelativeLocalization(6, hidden=12)
    seen: list[Tensor] = []
    head.layers[0].register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    rows, columns = head.guess(tensors["feat"], *cells(tensors))
    assert rows.shape == columns.shape == (32,)
    first = tensors["gathered"].transpose(1, 2).flatten(0, 1)
    assert torch.equal(seen[0][:, :6], first)
    swapped = tensors["py"].long()
    second = torch.stack([tensors["feat"][b, :, r, c] for b in range(2) for r, c in swapped[b].tolist()])
    assert torch.equal(seen[0][:, 6:], second)


def test_the_head_of_the_authors(golden: Any) -> None:
    tensors, _ = golden
    with safe_open(GOLDEN / "drloc_head.safetensors", "pt") as file:
        stored = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    head = DenseRelativeLocalization(6, hidden=512)
    head.load_state_dict({key.removeprefix("sd/"): value for key, value in stored.items() if key.startswith("sd/")})
    with torch.no_grad():
        guess = head.guess(tensors["feat"], *cells(tensors))
    torch.testing.assert_close(torch.stack(guess, 1), stored["pred"].flatten(0, 1), rtol=0, atol=2e-6)
    index = true_distances(*cells(tensors), SEVEN, signed=False).flatten(0, 1)
    assert float(localization_loss(guess, index, SEVEN)) == pytest.approx(2.470688, abs=2e-6)


@pytest.mark.parametrize(
    ("width", "options", "count"),
    [
        (768, {}, 1_050_626),
        (384, {}, 657_410),
        (2048, {}, 2_361_346),
        (768, {"loss": "ce", "grid": SEVEN}, 1_319_438),
        (768, {"loss": "cbr", "grid": SEVEN, "signed": True}, 1_325_594),
    ],
)
def test_heads_have_the_published_size(width: int, options: dict[str, Any], count: int) -> None:
    head = DenseRelativeLocalization(width, hidden=512, **options)
    assert sum(parameter.numel() for parameter in head.parameters()) == count


# ---- pairs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(7, 7), (3, 5), (1, 4)])
def test_distances_are_those_of_rows_and_columns(grid: tuple[int, int]) -> None:
    H, W = grid
    number = torch.arange(H * W)
    first, second = (pair.reshape(1, -1) for pair in torch.meshgrid(number, number, indexing="ij"))
    found = true_distances(first, second, grid, signed=False)[0].tolist()
    expected = [[abs(a // W - b // W), abs(a % W - b % W)] for a in range(H * W) for b in range(H * W)]
    assert found == expected
    signed = true_distances(first, second, grid, signed=True)[0]
    assert signed.amin(0).tolist() == [0, 0] and signed.amax(0).tolist() == [2 * H - 2, 2 * W - 2]


def test_a_rectangular_grid_is_read_by_its_own_width() -> None:
    """Features that are their own position: the head sees the rows and columns of the pairs that were drawn."""
    H, W = 3, 5
    rows, columns = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
    grid = torch.stack([rows, columns]).float()[None]
    first, second = draw_pairs(1, (H, W), 200, torch.device("cpu"), torch.Generator().manual_seed(0))
    seen: list[Tensor] = []
    head = DenseRelativeLocalization(2, hidden=4)
    head.layers[0].register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    head.guess(grid, first, second)
    difference = (seen[0][:, :2] - seen[0][:, 2:]).abs()
    assert torch.equal(difference, true_distances(first, second, (H, W), signed=False)[0].float())


def test_pairs_are_drawn_for_every_image_with_replacement_from_the_generator_alone() -> None:
    state = torch.random.get_rng_state()
    first, second = draw_pairs(3, (2, 2), 400, torch.device("cpu"), torch.Generator().manual_seed(5))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first.shape == second.shape == (3, 400)
    assert not torch.equal(first[0], first[1])
    assert 0.15 < float((first == second).float().mean()) < 0.35  # one cell twice: a quarter
    again, _ = draw_pairs(3, (2, 2), 400, torch.device("cpu"), torch.Generator().manual_seed(5))
    assert torch.equal(first, again)


def test_all_cells_with_all_cells_in_another_order() -> None:
    first, second = draw_pairs(2, (3, 4), "all", torch.device("cpu"), torch.Generator().manual_seed(0))
    assert torch.equal(first, torch.arange(12).expand(2, 12))
    assert torch.equal(second.sort(1).values, first)
    assert not torch.equal(second[0], second[1])


def test_fine_grids_are_averaged_once() -> None:
    grid = torch.randn(2, 3, 14, 14)
    expected = F.avg_pool2d(grid, 3, 2, 1, count_include_pad=False)
    assert torch.equal(pooled(grid, 14), expected) and expected.shape[2:] == SEVEN
    assert pooled(grid, 15) is grid and pooled(grid, 0) is grid
    assert pooled(torch.randn(1, 1, 13, 13), 14).shape[2:] == (13, 13)


# ---- the error in cells ----------------------------------------------------------------------------------


def test_chance_is_the_best_constant_answer() -> None:
    assert chance_error(SEVEN, signed=False) == pytest.approx(1.346939, abs=1e-6)
    assert chance_error((1, 1), signed=False) == 0
    distance = (torch.arange(5)[:, None] - torch.arange(5)).double()
    best = min(float((distance - guess).abs().mean()) for guess in range(-4, 5))
    assert chance_error((5, 5), signed=True) == pytest.approx(best)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"signed": True},
        {"target": "over_k"},
        {"target": "over_k1", "signed": True},
        {"target": "paper"},
        {"loss": "ce", "grid": (3, 4)},
        {"loss": "cbr", "grid": (3, 4), "signed": True},
        {"loss": "cbr_mse", "grid": (3, 4)},
        {"pairs": "all"},
    ],
    ids=str,
)
def test_every_variant_learns_where_cells_are(options: dict[str, Any]) -> None:
    """From features that tell the position, the error falls far below chance."""
    torch.manual_seed(0)
    place = torch.eye(12).reshape(12, 3, 4).expand(8, 12, 3, 4)
    head = DenseRelativeLocalization(12, **{"hidden": 32, **options})
    optimizer = torch.optim.Adam(head.parameters(), 1e-2)
    draw = torch.Generator().manual_seed(0)
    start = head(place, draw)
    for _ in range(200):
        found = head(place, draw)
        optimizer.zero_grad()
        found.loss.backward()
        optimizer.step()
    assert not found.error.requires_grad
    assert float(found.error) < 0.4 * found.chance
    assert float(found.error) < float(start.error)
    assert found.chance == chance_error((3, 4), bool(options.get("signed", False)))


# ---- the weight's course -----------------------------------------------------------------------------


def test_the_weight_of_the_authors() -> None:
    options = DrlocOptions(weight=0.5)
    found = [weight_at(options, epoch, 300) for epoch in (0, 1, 10, 20, 21, 50, 100)]
    assert found == pytest.approx([0, 0.025, 0.25, 0.5, 0.498214, 0.446429, 0.357143], abs=1e-6)
    assert weight_at(options, 60, 100) == pytest.approx(0.25)
    assert weight_at(options, 300, 300) == weight_at(options, 310, 300) == 0


@pytest.mark.parametrize("epochs", [1, 2, 5, 20, 21])
def test_the_weight_of_short_runs_rises_and_falls(epochs: int) -> None:
    course = [weight_at(DrlocOptions(weight=1.0), epochs * part / 100, epochs) for part in range(101)]
    assert course[0] == course[-1] == 0
    assert max(course) == pytest.approx(1) and course.index(max(course)) == 20
    assert min(course) >= 0


def test_a_constant_weight() -> None:
    assert weight_at(DrlocOptions(weight=0.3, schedule="constant"), 0, 10) == 0.3


# ---- on any backbone ---------------------------------------------------------------------------------


def auxiliary(model: str, size: int, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    kwargs = {"patch_size": 4} if model.startswith("vit_nano") else {}
    backbone = create_backbone(model, kwargs, num_classes=3, in_chans=3, img_size=size)
    setting = TaskInfo(num_classes=3, num_images=9, img_size=size)
    return backbone, auxiliaries()["drloc"](backbone, options_of(auxiliaries(), "drloc", options, "aux"), setting)


def apply(backbone: Any, aux: Any, size: int, progress: float = 0.5) -> Any:
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(2))
    context = Context(epoch=5, step=50, progress=progress, generator=torch.Generator().manual_seed(1), epochs=10)
    seen = Seen(images, torch.zeros(2), torch.arange(2), backbone.eval()(images))
    return aux(backbone, seen, context)


@pytest.mark.parametrize("model", ["vit_nano", "resnet_nano", "swin_nano", "pvt_v2_b0_32"])
def test_backbones_of_all_kinds_learn_from_it(model: str) -> None:
    backbone, aux = auxiliary(model, 32)
    found = apply(backbone, aux, 32)
    assert set(found.parts) == {"drloc", "drloc_error", "drloc_chance", "drloc_weight"}
    found.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in aux.parameters())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in backbone.parameters())
    assert found.total.item() == pytest.approx(float(found.parts["drloc_weight"] * found.parts["drloc"]))


def test_every_stage_of_a_hierarchical_model_has_a_head() -> None:
    backbone, aux = auxiliary("resnet_nano", 32, multiscale=True)
    assert [head.layers[0].in_features for head in aux.heads] == [2 * D for D, _, _ in backbone.grid_shapes]
    assert len(aux.heads) == 5
    found = apply(backbone, aux, 32)
    single = apply(*auxiliary("resnet_nano", 32), 32)
    assert float(found.parts["drloc"]) > float(single.parts["drloc"])


def test_stages_of_one_cell_are_left_out() -> None:
    backbone, aux = auxiliary("resnet10t", 32, multiscale=True)
    assert backbone.grid_shapes[-1][1:] == (1, 1)
    assert len(aux.heads) == len(backbone.grid_shapes) - 1


def test_a_grid_that_is_averaged_to_one_cell_is_refused() -> None:
    with pytest.raises(UsageError, match="aux drloc: the model's last grid is 1x1"):
        auxiliary("vit_nano", 8, pool_from=2)


def test_an_offset_is_the_same_class_while_images_grow() -> None:
    """A head of 8 x 8 cells on 4 x 4 of them: the same cell is in the middle of its 15 signed distances."""
    head = DenseRelativeLocalization(4, grid=(8, 8), loss="ce", signed=True, hidden=8)
    same_P2 = true_distances(torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1, dtype=torch.int64), (4, 4), True)
    assert head._shift(same_P2[0], (4, 4)).tolist() == [[7, 7]]
    assert head(torch.randn(2, 4, 4, 4)).loss.isfinite()


def test_every_stage_of_a_model_with_one_is_refused() -> None:
    with pytest.raises(UsageError, match="multiscale looks at every stage, and this model has one"):
        auxiliary("vit_nano", 32, multiscale=True)


@pytest.mark.parametrize("model", ["vit_nano", "swin_nano", "t2t_nano"])
def test_before_or_after_the_final_norm(model: str) -> None:
    """One backbone serves both: what it gives does not depend on the losses that look at it."""
    backbone, before = auxiliary(model, 32)
    _, after = auxiliary(model, 32, norm="after")
    after.load_state_dict(before.state_dict())
    with torch.no_grad():
        backbone.model.norm.weight.mul_(3)  # else the norm of a normed grid would be the same
        images = torch.randn(2, 3, 32, 32)
        features = backbone.eval()(images)
        seen = Seen(images, torch.zeros(2), torch.arange(2), features)
        normed = seen._replace(
            features=features._replace(grids=(*features.grids[:-1], backbone.normed(features.grids[-1])))
        )
        losses = [
            aux(backbone, given, Context(5, 50, 0.5, torch.Generator().manual_seed(1), epochs=10)).parts["drloc"]
            for aux, given in ((before, seen), (after, seen), (before, normed))
        ]
    assert torch.equal(losses[1], losses[2]) and not torch.isclose(losses[0], losses[1])


def test_a_model_whose_normed_grid_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="norm = after: the last grid of Hiera is not known"):
        auxiliary("hiera_tiny_224", 224, norm="after")


def test_the_order_of_a_batch_changes_nothing_but_the_pairs() -> None:
    """With all cells known to the head, a permuted batch and permuted pairs give the same loss."""
    torch.manual_seed(0)
    grid = torch.randn(4, 6, 5, 5)
    head = DenseRelativeLocalization(6, hidden=8)
    first, second = draw_pairs(4, (5, 5), 9, grid.device, torch.Generator().manual_seed(0))
    order = torch.tensor([2, 0, 3, 1])

    def loss(images: Tensor, a: Tensor, b: Tensor) -> Tensor:
        index = true_distances(a, b, (5, 5), signed=False).flatten(0, 1)
        return localization_loss(head.guess(images, a, b), index, (5, 5))

    torch.testing.assert_close(
        loss(grid, first, second), loss(grid[order], first[order], second[order]), rtol=1e-6, atol=1e-6
    )


# ---- what the user is told -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "epochs", "words"),
    [
        ({}, 200, ["reached after 20 of 200 epochs, then falling to 0"]),
        ({}, 10, ["reached after 2 of 10 epochs, a fifth of the run instead of 20, then falling to 0"]),
        ({"warmup_epochs": 1}, 10, ["reached after 1 of 10 epochs, then"]),
        ({"schedule": "constant"}, 10, ["all the time"]),
        ({"hidden": 512}, 10, ["the 8 x 8 grid with a head of width 512, where chance is 1.56 cells off"]),
        (
            {"signed": True, "pool_from": 4},
            10,
            ["the 4 x 4 grid, averaged from 8 x 8, with a head of width 64, where chance is 1.25 cells off"],
        ),
    ],
)
def test_one_line_tells_weight_course_head_grid_and_chance(options: Any, epochs: int, words: list[str]) -> None:
    _, aux = auxiliary("vit_nano", 32, **options)
    choices = Choices(smallvit.make_recipe(aux="drloc"))
    aux.notes(choices.within("aux.drloc"), epochs)
    (told,) = choices.made
    assert (told.key, told.value) == ("aux.drloc.weight", 0.5)
    for part in words:
        assert part in told.why


@pytest.mark.parametrize("length", [{"epochs": 7}, {"budget": "60s"}])
def test_a_plan_prints_that_line(length: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """With a budget, too, whose epochs are known last."""
    asked = smallvit.make_recipe(data="digits", aux="drloc", per_class=8, threads=1, **length)
    plan = make_plan(asked, with_floors=False)
    (told,) = [choice for choice in plan.choices if choice.key.startswith("aux.drloc")]
    assert f" of {plan.recipe.epochs:,} epochs" in told.why
    show_plan(plan)
    assert f"aux.drloc.weight = 0.5  ({told.why})" in capsys.readouterr().err


# ---- refusals ------------------------------------------------------------------------------------------


def test_one_cell_is_refused_with_what_to_change() -> None:
    with pytest.raises(UsageError, match=r"1x1 at 32 px.*--img-size 128.*smaller patch"):
        auxiliary("resnet18", 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": -1}, "weight"),
        ({"pairs": 0}, "pairs"),
        ({"los": "l1"}, "did you mean aux.drloc.loss"),
        ({"loss": "l2"}, "'l1'"),
        ({"loss": "ce", "target": "paper"}, "target='paper' is for loss='l1'"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        auxiliary("vit_nano", 32, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "ce"}, "give grid="),
        ({"loss": "l2"}, "loss='l2': choose one of l1, ce"),
        ({"target": "share"}, "target='share': choose one of raw"),
        ({"pairs": 0}, "pairs=0: give at least 1"),
    ],
)
def test_impossible_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DenseRelativeLocalization(8, **options)


@pytest.mark.parametrize("shape", [(2, 8, 1, 1), (2, 6, 4, 4), (2, 16, 8)])
def test_features_that_are_no_grid_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError, match="one cell" if shape[1:] == (8, 1, 1) else r"give \(images, 8, rows, columns\)"
    ):
        DenseRelativeLocalization(8)(torch.zeros(shape))


# ---- in a run ------------------------------------------------------------------------------------------


def test_a_run_with_the_loss(tmp_path: Path) -> None:
    run = smallvit.train(
        "digits", model="vit_nano", aux=["drloc"], epochs=3, per_class=20, out=tmp_path / "run", threads=1,
        settings={"aux.drloc.weight": 0.7, "model.kwargs.patch_size": 2}, show_progress=False,
    )  # fmt: skip
    assert run.recipe.aux["drloc"]["weight"] == 0.7 and run.recipe.aux["drloc"]["hidden"] == "width"
    records = [record["parts"] for record in run.metrics if record["kind"] == "train"]
    assert records[-1]["drloc_error"] > 0 and records[-1]["drloc_chance"] == pytest.approx(chance_error((4, 4), False))
    names = read_tensors(run.path / "model.safetensors")[0]
    assert not [name for name in names if "drloc" in name or "layers.0" in name]
    page = (run.path / "report.html").read_text()
    assert "Localization error, in cells" in page
    assert json.loads((run.path / "recipe.json").read_text())["asked"]["aux"] == {"drloc": {"weight": 0.7}}


def test_the_loss_draws_from_nothing_that_the_rest_draws_from(tmp_path: Path) -> None:
    """With weight 0 the model is the one of a run without the loss."""
    common: dict[str, Any] = {
        "epochs": 2, "per_class": 20, "threads": 1, "show_progress": False, "mixup": 0.5, "precision": "fp32",
    }  # fmt: skip
    without = smallvit.train("digits", out=tmp_path / "without", **common)
    silent = smallvit.train("digits", out=tmp_path / "with", aux="drloc", settings={"aux.drloc.weight": 0.0}, **common)
    one, other = (read_tensors(run.path / "model.safetensors")[0] for run in (without, silent))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_features_of_another_objective_will_do() -> None:
    backbone, aux = auxiliary("vit_nano", 32)
    features = Features(torch.zeros(6, 64), (torch.randn(6, 64, 8, 8, requires_grad=True),))
    context = Context(0, 0, 0.2, torch.Generator().manual_seed(0), epochs=10)
    batch = Batch((torch.zeros(6, 3, 32, 32),) * 2, torch.zeros(3), torch.arange(3))
    seen = Seen.of(batch, batch.views[0], features)
    assert seen.index_A.tolist() == [0, 1, 2, 0, 1, 2]
    found = aux(backbone, seen, context)
    assert found.total.requires_grad and found.seen is seen
