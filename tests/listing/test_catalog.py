"""What `list` and `recipe show` print: every recipe, model, method and data set, as commands accept them."""

from __future__ import annotations

import tomllib

import pytest

from smallvit.errors import UsageError
from smallvit.listing.catalog import CATALOG, recipe_page
from smallvit.listing.counted import counted_rows, stored_rows
from smallvit.models.aliases import ALIASES
from smallvit.objectives.base import all_options
from smallvit.recipe import build_recipe, validate
from smallvit.recipes import preset_names, read_preset


@pytest.mark.parametrize("name", preset_names())
def test_recipe_page_is_the_recipe(name: str) -> None:
    page = recipe_page(name)
    assert page.startswith(f"# description: {read_preset(name)['about']['description']}")
    shown, own = validate(tomllib.loads(page)), build_recipe(name)
    assert all_options(shown) == all_options(own), "a part's own defaults are shown, too"
    assert shown.objective.options.items() >= own.objective.options.items()
    assert shown.model_copy(update={"objective": own.objective, "aux": own.aux}) == own
    assert f'objective.name = "{build_recipe(name).objective.name}"  # set by this recipe' in page


def test_recipe_page_has_every_option_of_its_parts() -> None:
    page = recipe_page("pretrain-idmm")
    assert "objective.small_crops = 4\n" in page and "objective.label_smoothing = 0.1\n" in page
    assert "aux.drloc.pool_from = 14\n" in recipe_page("liu2021-swin")


def test_catalog_holds_what_commands_accept() -> None:
    assert dict(CATALOG["recipes"]("")).keys() == set(preset_names())
    assert {"mnist5k", "digits"} <= dict(CATALOG["datasets"]("")).keys()
    assert "supervised" in dict(CATALOG["methods"](""))
    assert "drloc" in dict(CATALOG["methods"](""))


def test_catalog_of_models_has_their_size_and_source() -> None:
    head, *rows = CATALOG["models"]("")
    models = {name: dict(zip(head, (name, *columns), strict=True)) for name, *columns in rows}
    assert {*ALIASES, "resnet_nano", "resnet18_32", "resnet50_32", "dhvt_tiny_patch4_32"} <= models.keys()
    assert models["dhvt_tiny_patch4_32"]["parameters"] == "5,991,280"
    assert models["dhvt_tiny_patch4_32"]["MACs"] == "388 M"
    assert models["dhvt_tiny_patch4_32"]["size"] == "32 px"
    assert models["dhvt_tiny_patch4_32"]["source"] == "Lu 2022"
    assert models["t2t_vit_7"]["size"] == "224 px" and models["vit_nano"]["source"] == "smallvit"
    assert all(row["what it is"] for row in models.values())


def test_the_stored_table_of_models_is_what_counting_gives() -> None:
    assert stored_rows() == counted_rows(), "a model was added or changed: python -m smallvit.listing.counted"


def test_catalog_of_timm_models_by_pattern() -> None:
    names = [name for (name,) in CATALOG["models"]("resnet18*")]
    assert "resnet18" in names
    assert all(name.startswith("resnet18") for name in names)
    with pytest.raises(UsageError, match="no timm model matches 'resnet_189'"):
        list(CATALOG["models"]("resnet_189"))


def test_a_model_has_one_number_of_parameters() -> None:
    """The column is counted; a second number in the text would be another one (of other classes, of a paper)."""
    head, *rows = CATALOG["models"]("")
    assert head[1] == "parameters"
    assert [row[0] for row in rows if "parameters" in row[-1] or " M " in row[-1]] == []
