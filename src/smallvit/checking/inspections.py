"""From what was seen to findings. Every function yields the problems of one kind, and none where all is well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from smallvit.checking import rules
from smallvit.checking.near_duplicates.search import Scan
from smallvit.checking.rules import Problem, listed, problem, share
from smallvit.checking.survey import File, Survey
from smallvit.console import are, several
from smallvit.data.files import MOST_BROKEN
from smallvit.data.imageset import ImageSet
from smallvit.data.split import PART_ADJECTIVES, Split
from smallvit.evaluation.statistics import wilson
from smallvit.models.features import Backbone
from smallvit.recipe import Recipe, resolved

# ---- files -------------------------------------------------------------------------------------------


def unreadable(broken: Mapping[str, str], total: int) -> Iterator[Problem]:
    if broken:
        kinds = Counter(_kind(why) for why in broken.values())
        counted = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
        yield problem(
            "many-unreadable" if len(broken) > MOST_BROKEN * total else "unreadable",
            f"{are(len(broken), 'file', total)} not readable ({share(len(broken), total)}): {counted}",
            f"Repair or remove them. Training skips up to {MOST_BROKEN:.0%} of the files, and stops beyond that.",
            [f"{name}: {why}" for name, why in broken.items()],
        )


def _kind(why: str) -> str:
    kinds = {"the file is empty": "empty", "more than": "too large", "damaged": "damaged"}
    return next((kind for start, kind in kinds.items() if why.startswith(start)), "no image we read")


def other_files(survey: Survey) -> Iterator[Problem]:
    if survey.empty:
        yield problem(
            "empty-class",
            f"{are(len(survey.empty), 'class folder')} without images and left out: {listed(survey.empty)}",
            "Remove them, or put their images in.",
        )
    if survey.unread:
        yield problem(
            "outside-classes",
            f"{len(survey.unread):,} outside of the class folders and left out (images, and folders that are only linked): {listed(survey.unread)}",
            "Move the images into the folder of their class.",
            survey.unread,
        )
    if count := survey.ignored.total():
        many = count > rules.MOST_IGNORED * (count + len(survey.files))
        kinds = ", ".join(f"{number:,} {suffix}" for suffix, number in survey.ignored.most_common(6))
        advice = (
            "If there are pictures among them, save them as JPEG or PNG."
            if many
            else "Nothing, if they are no pictures."
        )
        yield problem(
            "ignored-files" if many else "other-files",
            f"{are(count, 'file')} not looked at for the suffix: {kinds}",
            advice,
        )
    if huge := [file for file in survey.readable if file.width * file.height > rules.HUGE_PIXELS]:
        yield problem(
            "huge-files",
            f"{are(len(huge), 'file')} of more than {rules.HUGE_PIXELS // 10**6} million pixels",
            "Decoding them once takes seconds each; shrink them if that matters.",
            [f"{file.name}: {file.width:,} x {file.height:,}" for file in huge],
        )


def sizes(files: list[File], img_size: int, fit: str) -> Iterator[Problem]:
    shorter = np.array([min(file.width, file.height) for file in files])
    longer = np.array([max(file.width, file.height) for file in files])
    low, high = np.percentile(shorter, [5, 95])
    if high > rules.MOST_SIZE_SPREAD * low:
        smallest, largest = files[int(shorter.argmin())], files[int(shorter.argmax())]
        yield problem(
            "sizes",
            f"the shorter sides range from {low:.0f} to {high:.0f} px (5 % are smaller, 5 % larger)",
            "Small files become blurred at the common size. If that goes with the class, the model learns the blur: "
            "shrink the large ones, or leave the small ones out.",
            [f"{file.name}: {file.width} x {file.height}" for file in (smallest, largest)],
        )
    long = [file for file, ratio in zip(files, longer / shorter, strict=True) if ratio >= rules.LONG_SHAPE]
    if fit != "pad" and len(long) > rules.NOTABLE_SHARE * len(files):
        what = "the crop takes more than half of their area" if fit == "crop" else "squashed to less than half"
        yield problem(
            "shapes",
            f"{are(len(long), 'image', len(files))} at least {rules.LONG_SHAPE} times as long as wide "
            f"({share(len(long), len(files))}): {what}",
            "--fit pad keeps all of them.",
            [f"{file.name}: {file.width} x {file.height}" for file in long],
        )
    small = [file for file, side in zip(files, shorter, strict=True) if side * rules.MOST_ENLARGED < img_size]
    if len(small) > rules.NOTABLE_SHARE * len(files):
        yield problem(
            "enlarged",
            f"{are(len(small), 'image', len(files))} smaller than the {img_size} px of training "
            f"({share(len(small), len(files))}) and will be enlarged; half of all are at most {np.median(shorter):.0f} px",
            _smaller(float(np.median(shorter)), img_size),
            [f"{file.name}: {file.width} x {file.height}" for file in small],
        )


def _smaller(typical: float, img_size: int) -> str:
    side = max(4, int(typical) // 4 * 4)
    if side < img_size:
        return f"--img-size {side} costs less, and half of them have no more pixels than that."
    return "Most are large enough: leave the small ones out, or take them as they are."


def enlarged_arrays(side: int, img_size: int, total: int) -> Iterator[Problem]:
    if side * rules.MOST_ENLARGED < img_size:
        yield problem(
            "enlarged",
            f"all {total:,} images are {side} px and will be enlarged to {img_size} px",
            f"--img-size {side} costs less and loses nothing.",
        )


def colour(images: ImageSet, scan: Scan) -> Iterator[Problem]:
    """Grey and colour pictures in one set; or grey ones that are stored in colour."""
    if images.images_NCSS.shape[1] != 3:
        return
    grey_N = scan.colourless_N & ~scan.blank_N
    count, total = int(grey_N.sum()), int((~scan.blank_N).sum())
    if count == total and total:
        yield problem(
            "stored-colour",
            f"all {total:,} images are grey, stored with three equal channels",
            "--in-chans 1 is enough.",
        )
    elif count:
        rows = grey_N.nonzero()[:, 0].tolist()
        classes = Counter(images.class_names[int(images.labels_N[row])] for row in rows)
        spread = ", ".join(f"{number:,} in {name}" for name, number in classes.most_common(3))
        yield problem(
            "some-grey",
            f"{are(count, 'file', total)} grey ({share(count, total)}), the others have colour; of the grey ones {spread}",
            "If grey goes with the class, the model learns that. --in-chans 1 makes all of them grey.",
            [images.files[row] for row in rows],
        )


def blanks(images: ImageSet, scan: Scan) -> Iterator[Problem]:
    if rows := scan.blank_N.nonzero()[:, 0].tolist():
        yield problem(
            "blank",
            f"{are(len(rows), 'image', len(images))} of a single colour",
            "Remove them: there is nothing in them to learn.",
            [images.files[row] for row in rows],
        )


# ---- classes and parts -------------------------------------------------------------------------------


def classes(images: ImageSet, train: Tensor) -> Iterator[Problem]:
    counts = dict(zip(images.class_names, _counts(images, train), strict=True))
    if len(counts) < 2:
        yield problem(
            "one-class", f"there is one class only: {listed([*counts])}", "Add a folder for each other class."
        )
        return
    if missing := [name for name, count in counts.items() if not count]:
        yield problem(
            "untrained-class",
            f"of {len(counts):,} classes {len(missing):,} without training images: {listed(missing)}",
            "Add some, or leave these classes out of the other parts.",
        )
    present = {name: count for name, count in sorted(counts.items(), key=lambda item: item[1]) if count}
    if few := [f"{name} ({count})" for name, count in present.items() if count < rules.FEW_IMAGES]:
        yield problem(
            "few-images",
            f"of {len(counts):,} classes {len(few):,} with fewer than {rules.FEW_IMAGES} training images: {listed(few)}",
            "Add images, or merge classes: from so few, little can be learnt and less be measured.",
        )
    fewest, most = min(present, key=lambda name: present[name]), max(present, key=lambda name: present[name])
    if present[most] > rules.MOST_IMBALANCE * present[fewest]:
        yield problem(
            "imbalance",
            f"{most} has {present[most]:,} training images, {present[most] / present[fewest]:.0f} times as many as "
            f"{fewest} ({present[fewest]:,})",
            "Look at the balanced accuracy, and try --class-weights auto or --balanced.",
        )


def _counts(images: ImageSet, rows: Tensor) -> list[int]:
    return torch.bincount(images.labels_N[rows], minlength=len(images.class_names)).tolist()


def judged_part(split: Split) -> Iterator[Problem]:
    name, rows = next(iter(split.judged.items()), ("test", split.test))
    n = len(rows)
    if name == "left_out":  # one fold of several, which judge together
        return
    if not n:
        yield problem(
            "no-test",
            "neither a test nor a validation part: nothing will be judged",
            "Leave out --test none and --val none.",
        )
        return
    low, high = wilson(n // 2, n)
    if (half := (high - low) / 2) > rules.WIDEST_INTERVAL:
        yield problem(
            "small-test",
            f"the {PART_ADJECTIVES[name]} part has {several(n, 'image')}: an accuracy near 50 % is known to within "
            f"{100 * half:.0f} points only (95 %)",
            "train --folds 5 judges every image by a model that has not seen it; or compare over several seeds and splits.",
        )


def tokens(backbone: Backbone, recipe: Recipe) -> Iterator[Problem]:
    """Few cells at the end: of the patches of a ViT, or of the last stage of a model with stages."""
    same_grid = backbone.grid_indices is not None and len(backbone.grid_indices) == 1
    least = rules.FEW_TOKENS if same_grid else 2
    if backbone.final_grid and max(backbone.final_grid) < least:
        rows, columns = backbone.final_grid
        advice = (
            "Give --set model.kwargs.patch_size=N with a smaller patch"
            if same_grid
            else "Take a model with a smaller stride"
        )
        yield problem(
            "few-tokens",
            f"{recipe.model.name} sees {recipe.data.img_size} px images as {rows} x {columns} cells",
            f"{advice}, or larger images: --img-size {resolved(recipe.data.img_size) * least // max(rows, 1)}.",
        )
