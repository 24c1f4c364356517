"""What needs no torch to be seen is told before torch is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import make_folder
from smallvit.errors import UsageError

SCRIPT = """
import contextlib, io, json, sys
from smallvit.cli import main
told = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["smallvit", *words]
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        try: main()
        except SystemExit as end: status = end.code
    told.append([status, err.getvalue(), "torch" in sys.modules])
print(json.dumps(told))
"""


def test_before_torch_is_loaded(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", {"cat": 1, "dog": 1})
    make_folder(tmp_path / "loose", {".": 2})
    make_folder(tmp_path / "used", {"cat": 1})
    (tmp_path / "wrong.csv").write_text("file,klass\na.png,cat\n")
    (tmp_path / "bare.csv").write_text("path\na.png\n")
    cases: list[tuple[list[str], int, str]] = [
        (["train", "phtos"], 1, "no such folder or file: phtos: did you mean photos?"),
        (["check", "no/where"], 1, "no such folder or file: no/where (there is no no either)"),
        (["train", "minst5k"], 1, "did you mean mnist5k?"),
        (["curve", "no/where"], 1, "no such folder or file: no/where"),
        (["tune", "wrong.csv"], 1, "the first line must name the columns path and label"),
        (["train", "bare.csv"], 1, "names images but no labels"),
        (["pretrain", "empty.csv"], 1, "no such folder or file: empty.csv"),
        (["train", "loose"], 1, "images, but no class folders"),
        (["train", "photos", "--out", "used"], 1, "used is already used"),
        (["train", "photos", "--lr", "-1"], 2, "--lr -1.0: should be more than 0"),
        (["train", "photos", "--model", "nonsens_tiny"], 2, "unknown model 'nonsens_tiny': did you mean nest_tiny"),
        (["check", "photos", "--set", "model.name=dhvt_tny"], 2, "did you mean dhvt_tiny"),
        (["pretrain", "photos", "--method", "mae", "--model", "vit_pcio"], 2, "did you mean vit_pico"),
        (["train", "photos", "--recipe", "nonsense"], 2, "nonsense"),
        (["train", "photos", "--set", "epochs"], 2, "write it as section.key=value"),
        (["train", "--continue", "runs/a", "--epochs", "2"], 1, "runs/a is not a run folder"),
        (["evaluate", "runs/a"], 1, "there is no such folder"),
        (["diagnose", "photos"], 1, "it has no recipe.json"),
        (["compare", "photos", "loose"], 1, "photos is not a run folder"),
        (["predict", "runs/a", "new.jpg"], 1, "there is no such folder"),
        (["resume", "photos"], 1, "it has no recipe.json"),
        (["--version"], 0, ""),
        (["list", "datasets"], 0, ""),
    ]
    words = json.dumps([case[0] for case in cases])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, words], capture_output=True, text=True, cwd=tmp_path, check=True, timeout=120
    )
    for (given, status, phrase), (ended, said, loaded) in zip(
        cases, json.loads(done.stdout.splitlines()[-1]), strict=True
    ):
        assert (ended or 0) == status and phrase in said, (given, said)
        assert not loaded, f"{given} loads torch"
        assert "mnist5k" not in said or given[1] == "minst5k"


def test_every_name_that_can_be_built_passes_the_early_look_and_the_choices_are_the_same() -> None:
    import timm

    from smallvit.commands.model_names import REGISTERED, SHORT, _files, refuse_model
    from smallvit.models.aliases import ALIASES, HYBRID_KINDS
    from smallvit.models.features import check_model_name

    texts = [path.read_text() for path in _files()]
    registered = {name for text in texts for name in REGISTERED.findall(text)}
    assert registered == set(timm.list_models())
    assert set(ALIASES) - set(HYBRID_KINDS) <= registered | {name for text in texts for name in SHORT.findall(text)}
    for name in (*ALIASES, "auto", "resnet18.a1_in1k", "vit_tiny_patch16_224", timm.list_models()[-1]):
        refuse_model(name)
    for wrong in ("dhvt_tny", "resnt18", "vit_nan"):
        with pytest.raises(UsageError) as early:
            refuse_model(wrong)
        with pytest.raises(UsageError) as late:
            check_model_name(wrong)
        assert str(early.value) == str(late.value)
