"""What can be seen to be wrong before torch is loaded, which takes seconds: missing data, a used folder, no run, wrong values and names.

All of it is found again where it is used; here it is found at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smallvit.errors import RunError


def refuse_data(given: dict[str, Any], labelled: bool = True) -> None:
    """Of a command that takes images: its data, the folder for the run, and the recipe as far as it needs no torch."""
    if given.get("out") is not None:
        from smallvit.runs.folder import check_free

        check_free(given["out"], given["overwrite"])
    from smallvit.commands.model_names import refuse_model
    from smallvit.commands.options import asked_for
    from smallvit.data.kinds import look_early, where_of
    from smallvit.data.listed import Where
    from smallvit.planning.flags import read_flags

    asked, where, model = asked_for(given), None, given["model"]
    if asked["recipe"] is not None:
        recipe = read_flags(**asked)[0]
        model, where = recipe.model.name, where_of(recipe.data)  # with what a recipe or --set says of both
    elif given["data"] is not None:
        where = Where(given["data"], given["data_dir"] or "", given["lists"] or "", given["download"])
    if where is not None and given["data"] is not None:
        look_early(where, labelled)
    if model is not None:
        refuse_model(model)


def refuse_no_run(*folders: Path) -> None:
    """Of a command that takes runs, groups, studies or model files."""
    from smallvit.runs.folder import is_run, why_no_run

    for folder in folders:
        study = (folder / "study.json").is_file()
        if not is_run(folder) and not study and folder.suffix != ".safetensors":
            raise RunError(why_no_run(folder))
