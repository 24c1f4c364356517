"""A model against the floors: both judged the same images, so the paired test tells."""

from __future__ import annotations

import pytest

from smallvit.report.verdict import Score, about_part, against_floors, between, run_score, state, state_of_folds

N = 1000


def floor(model: int, alone: int) -> Score:
    """Right with 600 images; the model alone is right so often, the floor alone so often."""
    return Score("k-NN on pixels", 0.6, 0.57, 0.63, only=(model, alone, N))


@pytest.mark.parametrize(("model", "alone", "word"), [(30, 10, "Beats the floors"), (120, 100, "Too close to call")])
def test_the_same_lead_counts_by_the_images_that_only_one_gets_right(model: int, alone: int, word: str) -> None:
    """Two points above in both: intervals side by side overlap, and tell neither from the other."""
    accuracy = 0.6 + (model - alone) / N
    verdict = against_floors(
        Score("vit", accuracy, accuracy - 0.03, accuracy + 0.03, cautious_low=accuracy - 0.03), [floor(model, alone)]
    )
    assert verdict.word == word and f"alone is right {model} times" in verdict.text


def test_a_mean_over_seeds_is_above_over_seeds_and_over_images() -> None:
    mean = Score("vit", 0.65, 0.64, 0.66, replicates=5, cautious_low=0.62)
    assert against_floors(mean, [floor(80, 30)]).word == "Beats the floors"
    assert against_floors(mean._replace(low=0.58), [floor(80, 30)]).word == "Too close to call"
    assert against_floors(mean._replace(accuracy=0.61, low=0.605), [floor(210, 200)]).word == "Too close to call"


def test_one_answer_for_all_images_is_named() -> None:
    classes = [{"name": "cat", "n": 30}, {"name": "dog", "n": 20}]
    result = {"n": 50, "accuracy": 0.6, "interval": (0.46, 0.72), "per_class": classes}
    always = run_score("vit", result | {"confusion": [[30, 0], [20, 0]]})
    verdict = against_floors(always, [floor(0, 0)])
    assert verdict.word == "One answer for all" and "vit calls every image cat" in verdict.text
    assert not run_score("vit", result | {"confusion": [[29, 1], [20, 0]]}).only_answer
    assert not run_score("vit", result).only_answer, "with very many classes it is not stored"
    assert not run_score("vit", result | {"confusion": [[30, 0], [0, 0]]}).only_answer, "there were no dogs to be seen"


def test_a_run_of_an_earlier_version_is_judged_by_its_intervals() -> None:
    old = Score("k-NN on pixels", 0.6, 0.57, 0.63)
    assert "intervals overlap" in against_floors(Score("vit", 0.62, 0.59, 0.65, cautious_low=0.59), [old]).text


@pytest.mark.parametrize("pretrained", [False, True])
def test_what_rounds_to_no_difference_is_called_level(pretrained: bool) -> None:
    for accuracy, place in [(0.6, "level with"), (0.5998, "level with"), (0.599, "0.1 points below")]:
        verdict = against_floors(Score("vit", accuracy, 0.57, 0.63), [floor(30, 30)], pretrained)
        assert f" is {place} the best simple method" in verdict.text
    assert "a is level with b" in between([Score("a", 0.6, 0.57, 0.63), Score("b", 0.5998, 0.57, 0.63)]).text


@pytest.mark.parametrize("replicates", [2, 3])
def test_two_are_too_few_for_an_interval(replicates: int) -> None:
    score = Score("vit", 0.5, 0.01, 0.96, replicates=replicates)
    said = {"fold": state_of_folds(score._replace(word="fold"), 100), "seed": state(score, "test", 100)}
    for word, sentence in said.items():
        assert "1.0% to 96.0%" in sentence
        assert (f"Two {word}s can hardly give an interval" in sentence) == (replicates == 2)


@pytest.mark.parametrize(("select", "told"), [
    ("best", "chose the weights: the number flatters"), ("last", "did not choose the weights; where settings were chosen by them, the number flatters"),
    (None, "Where select = best, they chose the weights"),
])  # fmt: skip
def test_what_is_known_of_validation_images_that_judge(select: str | None, told: str) -> None:
    """That they chose nothing is not: a search, or a look at several runs, leaves no trace in a run."""
    said = about_part("val", select=select)
    assert said and said.word == "Measured on validation images" and told in said.text
    assert about_part("test", select=select) is None
