"""The recipe: presets, overrides, messages that name key, value and choices; and resolving it is a fixpoint."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from helpers import make_folder
from smallvit import make_recipe
from smallvit.errors import SmallvitError, UsageError, nearest
from smallvit.listing.catalog import flat, toml_page
from smallvit.mistakes import mistakes_in_words
from smallvit.models.aliases import architecture
from smallvit.objectives.base import auxiliaries, objectives
from smallvit.planning.plan import make_plan
from smallvit.recipe import Recipe, build_recipe, parse_assignment, validate
from smallvit.recipes import preset_names, read_preset
from smallvit.recipes.durations import parse_duration

# ---- presets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_valid_and_says_what_it_is(name: str) -> None:
    assert isinstance(build_recipe(name), Recipe)
    about = read_preset(name)["about"]
    assert about["description"]
    assert about["source"]


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_be_trained(name: str) -> None:
    """Model, loss and sizes fit together: a plan builds all of them once."""
    size = build_recipe(name).data.img_size
    asked = make_recipe(
        name, data="digits", img_size=32 if size == "auto" else size, per_class=4, batch_size=2, threads=1
    )
    plan = make_plan(asked, with_floors=False)
    assert plan.recipe.model.timm_name != "auto"


@pytest.mark.parametrize(
    ("name", "model", "size", "numbers"),
    [
        ("lu2022-cifar", "dhvt_tiny_patch4_32", 32, (512, 1e-3, 1e-6, 1e-5, 5, 300)),
        ("lu2022-domainnet", "dhvt_tiny_patch16_224", 224, (256, 5e-4, 1e-6, 1e-5, 20, 300)),
        ("lu2022-imagenet", "dhvt_tiny_patch16_224", 224, (512, 5e-4, 1e-6, 1e-5, 10, 300)),
        ("zhu2023", "zhu_vit_patch4_32", 32, (100, 1e-4, 1e-7, 1e-4, 0, 500)),
        ("liu2021-swin", "swin_tiny_patch4_window7_224", 224, (1024, 1e-3, 1e-6, 1e-5, 20, 100)),
        ("cao2022-deit-pretrain", "deit_tiny_patch16_224", 112, (256, 5e-4, 0, 0, 2, 800)),
        ("cao2022-deit", "deit_tiny_patch16_224", 224, (256, 5e-4, 0, 0, 2, 200)),
        ("cao2022-pvtv2-pretrain", "pvt_v2_b0", 112, (256, 1e-3, 0, 0, 10, 800)),
        ("cao2022-t2t", "t2t_vit_7", 224, (256, 1e-3, 0, 0, 10, 200)),
    ],
)
def test_published_numbers(name: str, model: str, size: int, numbers: tuple[float, ...]) -> None:
    """Batch, rate, rate at the start and at the end, warm-up and epochs, as the papers and their code have them."""
    recipe = build_recipe(name)
    lr = recipe.optimizer.lr
    assert isinstance(lr, float)
    schedule = recipe.schedule
    found = (
        recipe.batch_size,
        lr,
        lr * schedule.warmup_from,
        lr * schedule.end_at,
        schedule.warmup_epochs,
        recipe.epochs,
    )
    assert found == pytest.approx(numbers)
    assert architecture(recipe.model.name, size).timm_name == model
    assert recipe.data.img_size == size


def test_one_number_for_all_channels() -> None:
    plan = make_plan(make_recipe("zhu2023", data="digits", in_chans=3, per_class=8, batch_size=4), with_floors=False)
    assert plan.recipe.data.mean == (0.0, 0.0, 0.0) and plan.recipe.data.std == (1.0, 1.0, 1.0)


def test_an_auxiliary_loss_by_name_keeps_what_the_preset_says() -> None:
    assert make_recipe("liu2021-t2t", aux=["drloc"]).aux["drloc"]["weight"] == 0.1
    assert make_recipe(aux="drloc", settings={"aux.drloc.weight": 0.3}).aux == {"drloc": {"weight": 0.3}}
    assert make_recipe(aux=None).aux == {}
    with pytest.raises(UsageError, match=r"unknown aux 'drlock': .*drloc"):
        make_plan(make_recipe(data="digits", aux=["drlock"]))


def test_the_two_presets_that_commands_rely_on() -> None:
    assert {"default", "demo"} <= set(preset_names())


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(
        UsageError, match=r"unknown recipe 'defalt': did you mean default\? \(see .* or give a \.toml file\)"
    ):
        build_recipe("defalt")
    with pytest.raises(UsageError, match=r"^unknown recipe 'defalt'"):
        read_preset("defalt")


def test_preset_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('epochs = 7\n[about]\ndescription = "mine"\n[optimizer]\nlr = 0.01\n[model.kwargs]\ndepth = 2\n')
    for name in (path, str(path)):
        recipe = build_recipe(name, {"optimizer.weight_decay": 0.2})
        assert recipe.epochs == 7
        assert (recipe.optimizer.lr, recipe.optimizer.weight_decay) == (0.01, 0.2)
        assert recipe.model.kwargs == {"depth": 2}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"epochs = = 3", "mine.toml is not valid TOML: .*line 1"),
        (b"epochs = '\xff'", "mine.toml is not valid TOML: it is not UTF-8"),
        (b"about = 5", "about = 5: should be a section"),
        (b"epoch = 3", r"mine.toml: unknown key 'epoch': did you mean epochs\?"),
        (b"[optimizer]\nlr = -1", "mine.toml: optimizer.lr = -1: should be more than 0"),
        (b"optimizer = 5", "optimizer = 5: it is a section"),
    ],
)
def test_preset_file_that_cannot_be_used(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "mine.toml").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        build_recipe(tmp_path / "mine.toml")


def test_missing_preset_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read recipe file .*none\.toml: No such file"):
        build_recipe(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="cannot read recipe file"):
        (tmp_path / "folder.toml").mkdir()
        build_recipe(tmp_path / "folder.toml")


# ---- --set -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("epochs=3", "epochs", 3),
        ("optimizer.lr=1e-3", "optimizer.lr", 0.001),
        (" optimizer.lr = 0.5 ", "optimizer.lr", 0.5),
        ("compile=true", "compile", True),
        ("data.source=a folder/x=y", "data.source", "a folder/x=y"),
        ('model.name="vit_pico"', "model.name", "vit_pico"),
        ("model.name=vit_pico", "model.name", "vit_pico"),
        ("augment.scale=[0.2, 1]", "augment.scale", [0.2, 1]),
        ("model.kwargs.a.b=1", "model.kwargs.a.b", 1),
        ("model.kwargs={depth = 2}", "model.kwargs", {"depth": 2}),
        ("data.source=", "data.source", ""),
    ],
)
def test_assignment(text: str, path: str, value: Any) -> None:
    found = parse_assignment(text)
    assert found == (path, value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize("text", ["epochs", "", "=3", " =3"])
def test_assignment_without_key_or_value(text: str) -> None:
    with pytest.raises(UsageError, match=r"write it as section\.key=value, for example optimizer\.lr=0\.001"):
        parse_assignment(text)


def test_overrides_reach_every_depth_and_the_last_layer_wins() -> None:
    recipe = make_recipe(
        epochs=5, lr=0.1, settings={"optimizer.lr": 0.2, "augment.scale": [0.5, 1], "objective.mixup": 0.8}
    )
    assert recipe.epochs == 5
    assert recipe.optimizer.lr == 0.2
    assert recipe.augment.scale == (0.5, 1.0)
    assert recipe.objective.options == {"mixup": 0.8}
    assert make_recipe().optimizer.lr == "auto"


def test_override_below_a_value_says_so() -> None:
    with pytest.raises(UsageError, match=r"--set epochs\.x\.y: epochs is a value, not a section"):
        build_recipe("default", {"epochs": 3, "epochs.x.y": 1})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        # key that does not exist: the nearest, in its own section or another
        ("optimizer.lrr=1", r"unknown key 'optimizer\.lrr': did you mean optimizer\.lr\?"),
        ("optimiser.lr=1", r"unknown key 'optimiser': did you mean optimizer\?"),
        ("lr=0.1", r"unknown key 'lr': did you mean optimizer\.lr\?"),
        ("data.batch_size=8", r"unknown key 'data\.batch_size': did you mean batch_size, data\.cache_size\?"),
        ("optimizer.nonsense=1", "unknown key 'optimizer.nonsense': choices: name, lr, matrix_lr, rate_factor, weight_decay"),
        # wrong type
        ("epochs=many", r"epochs = 'many': should be a whole number or 'auto'$"),
        ("epochs=2.5", r"epochs = 2\.5: should be a whole number or 'auto'$"),
        ("optimizer.weight_decay=much", "optimizer.weight_decay = 'much': should be a number or 'auto'$"),
        ("compile=perhaps", "compile = 'perhaps': should be true or false or 'auto'$"),
        ("device=5", "device = 5: should be a word$"),
        ("optimizer=5", r"optimizer = 5: it is a section; set its keys, for example optimizer\.name="),
        ("objective=supervised", r"objective = 'supervised': it is a section; set its keys, for example objective\.name="),
        ("augment.scale=0.5", r"augment\.scale = 0\.5: should be a list of numbers$"),
        ("augment.scale=[0.5]", r"augment\.scale = \[0\.5\]: should hold more numbers$"),
        ("augment.scale=[0.1, 0.2, 0.3]", r"augment\.scale = \[0\.1, 0\.2, 0\.3\]: should hold 2 numbers$"),
        # impossible value
        ("epochs=0", "epochs = 0: should be at least 1 or 'auto'$"),
        ("batch_size=1", "batch_size = 1: should be at least 2 or 'auto'$"),
        ("seed=-1", "seed = -1: should be at least 0$"),
        ("optimizer.lr=0", "optimizer.lr = 0: should be more than 0 or 'auto'$"),
        ("optimizer.lr=nan", "optimizer.lr = nan: should be a finite number or 'auto'$"),
        ("optimizer.weight_decay=inf", "optimizer.weight_decay = inf: should be a finite number or 'auto'$"),
        ("data.in_chans=65", "data.in_chans = 65: should be at most 64 or 'auto'$"),
        ("data.fit=stretch", "data.fit = 'stretch': should be 'crop', 'squash' or 'pad'$"),
        ("data.val=1.5", "data.val = 1.5: should be none, a share between 0 and 1, or the name of a part$"),
        ("data.val=0", "data.val = 0: should be none, a share"),
        ("data.test=-0.2", "data.test = -0.2: should be none, a share"),
        ("data.fraction=2", "data.fraction = 2: should be at most 1$"),
        ("data.std=[0.2, 0]", r"data\.std = \[0\.2, 0\]: every number must be positive$"),
        ("augment.scale=[1, 0.5]", "the two numbers must be positive and in rising order$"),
        ("augment.scale=[0.5, 2]", r"augment\.scale = \[0\.5, 2\]: should be at most 1$"),
        ("precision=fp16", "precision = 'fp16': should be 'fp32' or 'bf16' or 'auto'$"),
        ("threads=0", "threads = 0: should be at least 1 or 'auto'$"),
        ("threads=1000000", "threads = 1000000: should be at most 1024 or 'auto'$"),
        ("budget=soon", "budget = 'soon': 'soon' is no duration: write 90s, 3m or 1.5h$"),
        ("budget=-3", "budget = -3: should be more than 0$"),
        ("ema=1", "ema = 1: should be less than 1$"),
    ],
)  # fmt: skip
def test_mistake_names_key_value_and_what_is_accepted(setting: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        build_recipe("default", dict([parse_assignment(setting)]))
    assert "\n" not in str(error.value)
    assert "pydantic" not in str(error.value)


def test_two_mistakes_are_both_named() -> None:
    with pytest.raises(UsageError, match=r"epochs = 0.*; unknown key 'sed': did you mean seed"):
        build_recipe("default", {"epochs": 0, "sed": 1})


def test_a_mistake_is_blamed_on_who_made_it(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("seed = 3\n")
    (tmp_path / "bad.toml").write_text("seed = -3\n")
    with pytest.raises(UsageError, match=r"^--lr -1: should be more than 0 or leave it out; seed = -3: should be"):
        make_recipe(tmp_path / "mine.toml", lr=-1, settings={"seed": -3})
    with pytest.raises(UsageError, match=r"^objective supervised: --mixup much: should be a number$"):
        make_recipe(mixup="much")
    with pytest.raises(UsageError, match=r"^recipe .*bad\.toml: seed = -3: should be at least 0$"):
        make_recipe(tmp_path / "bad.toml", lr=0.1)


def test_unknown_flag_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown argument 'modle': did you mean model.*settings="):
        make_recipe(modle="vit_nano")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("3m", 180), ("1.5h", 5400), ("45", 45), (" 2 m ", 120), ("0.5m", 30)]
)
def test_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert build_recipe("default", {"budget": text}).budget == seconds
    assert make_recipe(budget=text).budget == seconds


@pytest.mark.parametrize("text", ["", "m", "3 days", "-3m", "0", "0.0h", "1e3", "3mm", "three"])
def test_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no duration: write 90s, 3m or 1\.5h"):
        parse_duration(text)


@pytest.mark.parametrize(("given", "expected"), [("0.15", 0.15), (".2", 0.2), ("none", "none"), ("dev", "dev")])
def test_share_as_text(given: str, expected: float | str) -> None:
    assert make_recipe(val=given).data.val == expected


# ---- plain, frozen data ------------------------------------------------------------------------------


def test_frozen() -> None:
    recipe = build_recipe()
    with pytest.raises(ValidationError):
        recipe.epochs = 3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        recipe.optimizer.lr = 0.1  # type: ignore[misc]
    with pytest.raises(ValidationError):
        recipe.objective.name = "x"  # type: ignore[misc]


def test_two_recipes_share_nothing() -> None:
    one, two = build_recipe(), build_recipe()
    one.model.kwargs["depth"] = 1
    assert two.model.kwargs == {}
    assert build_recipe().model.kwargs == {}


ASKED: list[dict[str, Any]] = [
    {"data": "digits", "epochs": 1, "threads": 1},
    {
        "data": "digits", "model": "resnet_nano", "in_chans": 3, "img_size": 12, "batch_size": 16, "mixup": 0.4,
        "per_class": 5, "val": 0.3, "seed": 3, "epochs": 2, "threads": 1,
        "settings": {"ema": 0.9, "optimizer.name": "sgd", "augment.hue": 0.1, "model.kwargs.channels": [8, 8, 16, 16]},
    },
]  # fmt: skip


@pytest.fixture(params=["plain", "everything", "folder"])
def asked(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    if request.param != "folder":
        return make_recipe(**ASKED[request.param == "everything"])
    make_folder(tmp_path / "photos", {"cat": 20, "dog": 20}, size=(90, 100))
    monkeypatch.chdir(tmp_path)
    return make_recipe(data="photos", model="deit_tiny", epochs=1, threads=1, img_size=64)


def test_resolved_recipe_has_no_auto_survives_json_and_resolves_to_itself(asked: Recipe) -> None:
    first = make_plan(asked, with_floors=False)
    values = flat(first.recipe.model_dump())
    assert [key for key, value in values.items() if value == "auto"] == []
    assert {choice.key for choice in first.choices} <= values.keys()
    assert all(_plain(values[choice.key]) == _plain(choice.value) for choice in first.choices)

    stored = json.loads(json.dumps(first.recipe.model_dump()))
    again = validate(stored)
    assert again == first.recipe
    second = make_plan(again, with_floors=False)
    assert second.recipe == first.recipe
    assert second.choices == []
    assert all(a.equal(b) for a, b in zip(first.split[:3], second.split[:3], strict=True))


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def test_printed_recipe_is_a_recipe_file(asked: Recipe, tmp_path: Path) -> None:
    resolved = make_plan(asked, with_floors=False).recipe
    path = tmp_path / "again.toml"
    path.write_text(toml_page(resolved, {"epochs": "a note"}), encoding="utf-8")
    assert build_recipe(path) == resolved
    assert "epochs = 2  # a note" in path.read_text() or "epochs = 1  # a note" in path.read_text()


@pytest.mark.parametrize("name", ["plain", 'quote " and \\', "emoji \U0001f600 and \u00fc", "[brackets]", "# hash"])
def test_any_text_survives_the_recipe_file(name: str) -> None:
    recipe = make_recipe(data=name)
    assert validate(tomllib.loads(toml_page(recipe, {}))) == recipe


# ---- nearest, errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "choices", "phrase"),
    [
        ("vit_nan", ["vit_nano", "vit_pico", "zebra"], "did you mean vit_nano, vit_pico?"),
        ("xyz", ["b", "a"], "choices: a, b"),
        ("xyz", [f"name{number}" for number in range(13)], "13 choices, none of them close"),
    ],
)
def test_nearest(name: str, choices: list[str], phrase: str) -> None:
    assert nearest(name, choices) == phrase


def test_usage_errors_are_value_errors_with_status_2() -> None:
    with pytest.raises(ValueError, match="epochs") as error:
        build_recipe("default", {"epochs": 0})
    assert isinstance(error.value, SmallvitError)
    assert error.value.exit_status == 2


def test_the_decay_suits_the_optimizer_and_says_what_it_reaches() -> None:
    made = {
        name: make_plan(make_recipe(data="digits", per_class=8, settings={"optimizer.name": name}), with_floors=False)
        for name in ("adamw", "sgd", "muon")
    }
    decay = {name: plan.recipe.optimizer.weight_decay for name, plan in made.items()}
    assert decay == {"adamw": 0.05, "sgd": 5e-4, "muon": 0.05}
    whys = {name: {choice.key: choice.why for choice in plan.choices} for name, plan in made.items()}
    assert whys["adamw"]["optimizer.weight_decay"] == "usual for AdamW"
    assert "Muon's matrices have no decay" in whys["muon"]["optimizer.weight_decay"]


# ---- every mistake has words of ours -----------------------------------------------------------------

ODD = [
    None, "many", "", -1, 0, 0.5, 10**30, float("nan"), float("inf"), True, [], [1], ["a", "b"], [0.1, 0.2, 0.3],
    [None, 2], {}, {"a": 1}, "9" * 5000,
]  # fmt: skip
SECTIONS = {"recipe": Recipe, **{name: kind.Options for name, kind in {**objectives(), **auxiliaries()}.items()}}


def paths(model: type[BaseModel], outer: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        yield (*outer, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from paths(field.annotation, (*outer, name))


@pytest.mark.parametrize("name", SECTIONS)
def test_no_mistake_is_told_in_the_words_of_the_library(name: str) -> None:
    for path in paths(SECTIONS[name]):
        for value in ODD:
            tree: Any = value
            for key in reversed(path):
                tree = {key: tree}
            try:
                SECTIONS[name].model_validate(tree)
            except ValidationError as error:
                said = mistakes_in_words(error, SECTIONS[name], tree)
                assert said.startswith((".".join(path), "unknown key")), said
                for item in error.errors():
                    assert item["type"] == "value_error" or item["msg"] not in said, said
