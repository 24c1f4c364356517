"""One way to run a trained model: whatever the images come as, they are seen as training saw them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers import make_folder, noise_image
from smallvit.data.augment import Augmenter
from smallvit.data.images import read_image
from smallvit.data.imageset import ImageSet
from smallvit.data.loader import DeviceImages
from smallvit.data.preparation import Preparation
from smallvit.data.sources import open_source
from smallvit.errors import DataError, UsageError
from smallvit.evaluation.predictor import Predictor
from smallvit.evaluation.probes import extract
from smallvit.models.features import create_backbone
from smallvit.recipe import AugmentSpec

SIZE, CACHED = 8, 10


def predictor(model: str = "resnet_nano", in_chans: int = 3, **changes: Any) -> Predictor:
    """With a classifier that says something: timm's begins at zero."""
    torch.manual_seed(0)
    backbone = create_backbone(model, {}, num_classes=3, in_chans=in_chans, img_size=SIZE)
    nn.init.normal_(backbone.model.get_classifier().weight)  # type: ignore[operator]
    keys = {"img_size": SIZE, "cache_size": CACHED, "in_chans": in_chans, "fit": "crop"}
    mean, std = [0.4] * in_chans, [0.2] * in_chans
    preparation = Preparation.of({**keys, "mean": mean, "std": std, **changes})
    return Predictor(backbone, preparation, ("cat", "dog", "emu"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not square, larger than the squares, and a JPEG among them."""
    root = make_folder(tmp_path_factory.mktemp("photos"), {"cat": 4, "dog": 3}, size=(15, 12))
    noise_image("x", (15, 12)).save(root / "dog" / "x.jpg")
    return root


@pytest.fixture(scope="module")
def images(photos: Path) -> ImageSet:
    return open_source(str(photos)).load(CACHED, "crop", 3)


def by_hand(p: Predictor, squares: Tensor, output: Callable[[Tensor], Tensor]) -> Tensor:
    margin = (CACHED - SIZE) // 2
    centre = squares[..., margin : margin + SIZE, margin : margin + SIZE].float() / 255
    with torch.no_grad():
        return output((centre - 0.4) / 0.2)


# ---- what goes in --------------------------------------------------------------------------------------


def test_files_pictures_arrays_and_tensors_are_seen_as_the_set_was(images: ImageSet, photos: Path) -> None:
    p = predictor()
    expected = p.logits(images)
    files = [photos / name for name in images.files]
    pictures = [Image.open(file) for file in files]
    arrays = [np.asarray(picture) for picture in pictures]
    stacked = np.stack(arrays)
    for given in (
        files, list(map(str, files)), pictures, arrays, stacked, stacked[::-1][::-1],
        torch.from_numpy(stacked).permute(0, 3, 1, 2), list(torch.from_numpy(stacked).permute(0, 3, 1, 2).contiguous()),
        images.images_NCSS, [files[0], *pictures[1:4], *arrays[4:]],
        DeviceImages(images, Augmenter(AugmentSpec(crop="none", flip=0.5), [0.5] * 3, [0.5] * 3), torch.device("cpu")),
    ):  # fmt: skip
        assert torch.equal(p.logits(given), expected)
    for one in (files[5], str(files[5]), pictures[5]):
        torch.testing.assert_close(p.logits(one), expected[5:6])
    assert pictures[5].size == (15, 12) and expected.std(0).min() > 0


def test_rows_in_the_order_given_from_memory_and_streamed(images: ImageSet, photos: Path) -> None:
    p, rows = predictor(), torch.tensor([6, 0, 3, 3])
    streamed = open_source(str(photos)).load(CACHED, "crop", 3, limit_gb=0)
    expected = p.logits(images)[rows]
    torch.testing.assert_close(p.logits(images, rows), expected)
    assert torch.equal(p.logits(streamed, rows, batch_size=3), p.logits(images, rows, batch_size=3))
    assert not expected[0].equal(expected[1])


@pytest.mark.parametrize("fit", ["crop", "squash", "pad"])
def test_grey_models_and_every_fit(fit: str, photos: Path) -> None:
    p, file = predictor(in_chans=1, fit=fit), photos / "cat" / "000.png"
    expected = p.logits(read_image(file, CACHED, fit, 1)[None])  # type: ignore[arg-type]
    assert torch.equal(p.logits(file), expected)
    assert torch.equal(p.logits(Image.open(file)), expected)
    assert torch.equal(p.logits([np.asarray(Image.open(file).convert("L"))]), expected)


def test_16_bits_by_the_white_of_the_run(tmp_path: Path) -> None:
    p = predictor(in_chans=1, white=4095)
    wide = np.random.default_rng(0).integers(0, 4096, (12, 15), dtype=np.uint16)
    np.save(tmp_path / "wide.npy", wide)
    expected = p.logits(tmp_path / "wide.npy")
    for given in ([wide], wide[None, :, :, None], [torch.from_numpy(wide)], Image.fromarray(wide)):
        assert torch.equal(p.logits(given), expected)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (np.zeros((3, 12, 12), np.uint8), UsageError, r"shape \(3, 12, 12\): give N x H x W x C, or a list"),
        (torch.zeros(1, 2, 3, 12, 12), UsageError, "give N x C x H x W, or a list"),
        (np.zeros((2, 3, 12, 12), np.uint8), DataError, r"image 0 of 2: its shape \(3, 12, 12\) looks like C x H x W"),
        (torch.zeros(2, 3, 12, 12), DataError, "its pixels are float32, and nothing says what is white"),
        ([np.zeros((12, 12, 3), np.uint8), np.zeros((12, 12, 5), np.uint8)], DataError, "image 1 of 2: it has 5 channels"),
        ([np.zeros((0, 12, 3), np.uint8)], DataError, r"its shape is \(0, 12, 3\)"),
        ("no/such/file.png", DataError, "no/such/file.png: No such file"),
        ([], UsageError, "no images"),
    ],
)  # fmt: skip
def test_what_is_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        predictor().logits(given)


def test_one_image_and_many_by_their_axes() -> None:
    """A tensor may have its channels last where they can be nothing else."""
    p = predictor()
    pixels_NHWC = np.random.default_rng(0).integers(0, 256, (5, 12, 12, 3), dtype=np.uint8)
    tensor_NCHW = torch.tensor(pixels_NHWC).permute(0, 3, 1, 2)
    expected = p.logits(pixels_NHWC)
    for many in (tensor_NCHW, torch.tensor(pixels_NHWC), list(pixels_NHWC), list(tensor_NCHW)):
        assert torch.equal(p.logits(many), expected)
    alone = p.logits([pixels_NHWC[0]])
    for one in (pixels_NHWC[0], tensor_NCHW[0], torch.tensor(pixels_NHWC[0])):
        assert torch.equal(p.logits(one), alone)
    grey_NHW = pixels_NHWC[..., 0]
    for many in (grey_NHW, torch.tensor(grey_NHW), list(grey_NHW)):
        assert torch.equal(p.logits(many), p.logits(grey_NHW[..., None]))
    assert torch.equal(p.logits(grey_NHW[0]), p.logits([grey_NHW[0]]))


def test_rows_are_those_of_a_set() -> None:
    with pytest.raises(UsageError, match="rows choose from an ImageSet"):
        predictor().logits(torch.zeros(4, 3, CACHED, CACHED, dtype=torch.uint8), torch.arange(2))


# ---- what comes out ------------------------------------------------------------------------------------


def test_outputs_are_those_of_the_timm_model(images: ImageSet) -> None:
    p = predictor()
    model, squares = p.backbone.model.eval(), images.images_NCSS[torch.arange(len(images))]
    logits = by_hand(p, squares, model)
    torch.testing.assert_close(p.logits(images, batch_size=3), logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(p.probabilities(images), logits.softmax(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        p.features(images),
        by_hand(p, squares, lambda x: model.forward_head(model.forward_features(x), pre_logits=True)),  # type: ignore[operator]
        rtol=1e-4,
        atol=1e-5,
    )
    torch.testing.assert_close(p.logits_of([p.prepared(images)]), p.logits(images))


def test_calibrated_probabilities_need_a_temperature(images: ImageSet) -> None:
    p = predictor()
    with pytest.raises(UsageError, match="no temperature"):
        p.probabilities(images, calibrated=True)
    p.temperature = 2.5
    assert torch.equal(p.probabilities(images, calibrated=True), (p.logits(images) / 2.5).softmax(1))
    assert torch.equal(p.probabilities(images), p.logits(images).softmax(1))


def test_frozen_features_come_with_their_labels(images: ImageSet) -> None:
    p, rows = predictor(), torch.tensor([7, 1, 4])
    taken = extract(p, images, rows)
    assert torch.equal(taken.labels_N, images.labels_N[rows]) and torch.equal(
        taken.features_ND, p.features(images, rows)
    )
    with torch.no_grad():
        torch.testing.assert_close(p.backbone.classify(taken.features_ND), p.logits(images, rows))


# ---- the model -----------------------------------------------------------------------------------------


def test_as_many_at_once_as_memory_holds(images: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    model = predictor()
    expected, forward, seen = model.logits(images), Predictor._forward, []

    def short(self: Predictor, images_BCSS: Tensor, classify: bool) -> Tensor:
        seen.append(len(images_BCSS))
        if len(images_BCSS) > 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return forward(self, images_BCSS, classify)

    monkeypatch.setattr(Predictor, "_forward", short)
    torch.testing.assert_close(model.logits(images), expected)
    assert seen[0] > 3 and sum(count for count in seen if count <= 3) == len(expected)
    monkeypatch.setattr(Predictor, "_forward", lambda *_: (_ for _ in ()).throw(RuntimeError("another thing")))
    with pytest.raises(RuntimeError, match="another thing"):
        model.logits(images)


@pytest.mark.parametrize("training", [True, False])
def test_modes_and_statistics_stay_and_gradients_are_off(images: ImageSet, training: bool) -> None:
    p = predictor()
    p.backbone.train(training)
    p.backbone.model.bn1.eval()  # type: ignore[union-attr]  (a module with a mode of its own)
    modes = [module.training for module in p.backbone.modules()]
    statistics = {name: buffer.clone() for name, buffer in p.backbone.named_buffers()}
    assert not p.logits(images).requires_grad
    with pytest.raises(RuntimeError):
        p.logits_of([torch.zeros(1, 2, SIZE, SIZE)])
    assert [module.training for module in p.backbone.modules()] == modes
    assert all(torch.equal(buffer, statistics[name]) for name, buffer in p.backbone.named_buffers())


def test_float32_whatever_the_caller_does(images: ImageSet) -> None:
    p = predictor()
    expected = p.logits(images)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(p.logits(images), expected)


def moved_in_thought(backbone: nn.Module, mode: FakeTensorMode) -> None:
    """Its tensors become ones without values that are said to be on a GPU."""
    for module in backbone.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    moved = mode.from_tensor(tensor.detach()).to("cuda")
                    tensors[name] = nn.Parameter(moved) if isinstance(tensor, nn.Parameter) else moved  # type: ignore[assignment]


@pytest.fixture(scope="module")
def gpus_in_thought() -> None:
    """torch 2.7 wants a driver for tensors that have no values; later ones do not."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            mode.from_tensor(torch.zeros(1)).to("cuda")
    except RuntimeError:
        if tuple(map(int, torch.__version__.split(".")[:2])) > (2, 7):
            raise
        pytest.skip("torch 2.7 makes up no tensors of a GPU that is not there")


@pytest.mark.usefixtures("gpus_in_thought")
@pytest.mark.parametrize("model", ["vit_pico", "swin_nano", "resnet_nano", "dhvt_pico"])
def test_images_follow_the_model_to_another_device(model: str) -> None:
    """Made-up tensors know their device and refuse to be mixed with those of another; no GPU is needed for that."""
    p = predictor(model)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        moved_in_thought(p.backbone, mode)
        assert p.device.type == "cuda"
        squares = torch.zeros(5, 3, CACHED, CACHED, dtype=torch.uint8)
        made_up = ImageSet(squares, torch.zeros(5, dtype=torch.int64), ("a",), {}, ("",) * 5, "", "")
        rows = torch.arange(4)
        assert p.prepared(made_up, rows).device.type == "cuda"
        for output in (
            p.logits(made_up, rows, batch_size=3),
            p.features(made_up, rows),
            p.probabilities(made_up, rows),
        ):
            assert output.device.type == "cpu" and len(output) == 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_says_the_same(images: ImageSet) -> None:
    p = predictor()
    expected = p.logits(images)
    p.backbone.to("cuda")
    torch.testing.assert_close(p.logits(images), expected, rtol=1e-2, atol=1e-2)
