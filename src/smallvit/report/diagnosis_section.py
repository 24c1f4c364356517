"""The diagnosis on the page: sentences, attention over images, CKA as a map, feature maps, locality.

Pictures that answer to a slider or a pointer are drawn by one small script from data inside the page; the page
allows no other script, names it by its hash, and a page without a diagnosis has none. L layers, M heads, B images.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smallvit.report.collect import Content
from smallvit.report.figures import Curve, curve_panel
from smallvit.report.pictures import Picture, gallery
from smallvit.report.svg import INK, LINE, SOFT, color, few_ticks, pixel_axes, style, to_svg
from smallvit.report.verdict import Verdict
from smallvit.runs.stored_findings import StoredFinding

Array = NDArray[Any]
SENTENCES = 5  # at the top of the page; the others follow in the section
MOST_MAPS = 20  # layers of the grid of feature maps
MOST_HEADS = 8  # whose maps can be chosen one by one


def diagnosis_section(contents: Sequence[Content], image_bytes: int) -> dict[str, Any]:
    """What the template needs: all empty where no run was diagnosed."""
    diagnosed = [(run, run.findings) for run in contents if run.findings]
    parts = [_run_part(run, found, image_bytes // len(diagnosed)) for run, found in diagnosed]
    script = _script() if any(part["attention"] or part["similarities"] for part in parts) else ""
    return {
        "diagnoses": parts,
        "script": script,
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() if script else "",
        "diagnosis_html": _render(parts, many=len(contents) > 1) if parts else "",
    }


def outdated(contents: Sequence[Content]) -> list[Verdict]:
    """What is said in place of a diagnosis that this version cannot read."""
    return [
        Verdict(
            "caution",
            "The diagnosis is left out",
            f"That of {run.label} was stored by another version of smallvit: run `smallvit diagnose` on it again.",
        )
        for run in contents
        if run.findings is None
    ]


def _script() -> str:
    return (resources.files("smallvit.report") / "diagnosis.js").read_text(encoding="utf-8")


def _render(parts: Sequence[Mapping[str, Any]], many: bool) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = (resources.files("smallvit.report") / "diagnosis.html.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(parts=parts, many=many)


def _run_part(run: Content, found: Mapping[str, StoredFinding], image_bytes: int) -> dict[str, Any]:
    said = sorted((one for one in found.values() if one.verdict), key=lambda one: -one.weight)
    sentences = [one.verdict for one in said]
    return {
        "label": run.label,
        "series": run.series,
        "measured_on": _measured_on(found.get("fit")),
        "unit": _unit(found),
        "summary": sentences[:SENTENCES],
        "more": sentences[SENTENCES:],
        "attention": _attention(found, image_bytes // 4),
        "similarities": [_similarity(found[name], run) for name in ("similarity", "self_similarity") if name in found],
        "maps": _maps(found, image_bytes // 2),
        "locality": _locality(found.get("locality"), run.series),
        "layers": _layer_panels(found, run.series),
    }


def _measured_on(fit: StoredFinding | None) -> str:
    if fit is None:
        return ""
    return f"{fit.numbers['images']:.0f} {fit.labels['part'][0]} images and {fit.numbers['train_images']:.0f} training images"


def _unit(found: Mapping[str, StoredFinding]) -> str:
    return found["neighbours"].labels["unit"][0] if "neighbours" in found else "block"


def in_script(data: Any) -> str:
    """JSON that no text in it can end: a class may be called </script>."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# ---- attention ---------------------------------------------------------------------------------------


def _captions(pictures: StoredFinding) -> list[str]:
    true, predicted = pictures.labels["true"], pictures.labels["predicted"]
    return [a if a == b else f"{a}, taken for {b}" for a, b in zip(true, predicted, strict=True)]


def _attention(found: Mapping[str, StoredFinding], image_bytes: int) -> dict[str, Any] | None:
    """The masks as bytes: a grid of 8 x 8 takes 64 of them, so every head of every layer can be had."""
    attention, pictures = found.get("attention"), found.get("pictures")
    if attention is None or pictures is None:
        return None
    layers, captions = list(attention.labels["layers"]), _captions(pictures)
    shown = gallery(pictures.arrays["pixels"], [{"label": one} for one in captions], image_bytes).pictures
    if not shown:
        return None
    kinds = _kinds(attention.arrays, len(layers))
    data = {
        "layers": layers,
        "captions": captions[: len(shown)],
        "images": [{"uri": one.uri, "width": one.width, "height": one.height} for one in shown],
        "kinds": [{"name": name, "masks": _masks(maps, common, len(shown))} for name, maps, common in kinds],
    }
    return {
        "data": in_script(data),
        "layers": layers,
        "captions": captions[: len(shown)],
        "kinds": [k[0] for k in kinds],
        "who": "the class token" if attention.numbers.get("class_token") else "all cells on average",
    }


def _kinds(arrays: Mapping[str, Array], layers: int) -> list[tuple[str, list[Array], bool]]:
    """What can be chosen: name, (B, H, W) of every layer, and whether all layers share one scale."""

    def stored(name: str) -> list[Array]:
        return [arrays[f"{name}.{number}"].astype(np.float32) for number in range(layers)]

    looks_L = stored("looks")
    mean_L = [one_BMHW.mean(1) for one_BMHW in looks_L]
    kinds = [
        ("mean of the heads", mean_L, False),
        ("mean of the heads, one scale for all layers", mean_L, True),
        ("rollout", stored("rollout"), False),
    ]
    fewest, heads = (choose(one_BMHW.shape[1] for one_BMHW in looks_L) for choose in (min, max))
    for head in range(min(MOST_HEADS, heads)):
        words = f"head {head + 1}" if head < fewest else f"head {head + 1} (dark: the layer has fewer)"
        maps = [one[:, head] if head < one.shape[1] else np.zeros_like(one[:, 0]) for one in looks_L]
        kinds.append((words, maps, False))
    if "head_tokens.0" in arrays:
        tokens_L = stored("head_tokens")
        kinds += [
            (f"from head token {token + 1}", [one_BTHW[:, token] for one_BTHW in tokens_L], False)
            for token in range(min(MOST_HEADS, tokens_L[0].shape[1]))
        ]
    return kinds


def _masks(maps_L: Sequence[Array], common: bool, images: int) -> list[list[dict[str, Any]]]:
    """For every image and layer: rows, columns and bytes, 255 at the maximum of the layer or of all layers."""
    masks = []
    for image in range(images):
        most = max(float(one[image].max()) for one in maps_L)
        row = []
        for one_BHW in maps_L:
            largest = most if common else float(one_BHW[image].max())
            values = np.clip(255 * one_BHW[image] / max(largest, 1e-12), 0, 255).round().astype(np.uint8)
            row.append({"rows": values.shape[0], "columns": values.shape[1], "bytes": _encoded(values)})
        masks.append(row)
    return masks


def _encoded(values: NDArray[np.uint8]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


# ---- CKA ---------------------------------------------------------------------------------------------


def _similarity(found: StoredFinding, run: Content) -> dict[str, Any]:
    cka_AC = found.arrays["cka"]
    other = found.labels["other"][0]
    model = str(run.resolved.get("model.name", run.label))
    data = {
        "models": [model, other or model],
        "rows": found.labels["rows"],
        "columns": found.labels["columns"],
        **{
            name: np.round(1000 * found.arrays[key]).astype(int).ravel().tolist()
            for name, key in (("value", "cka"), ("low", "low"), ("high", "high"))
            if key in found.arrays
        },
    }
    left_out = list(found.labels.get("constant", []))
    return {
        "data": in_script(data),
        "title": f"{model} and {other}" if other else f"{model} with itself",
        "row_model": model,
        "column_model": other or model,
        "shape": f"{cka_AC.shape[0]} by {cka_AC.shape[1]}",
        "mean": f"{float(cka_AC.mean()):.2f}",
        "left_out": left_out,
        "id": f"cka-{run.series}-{'other' if other else 'self'}",
    }


# ---- still pictures ----------------------------------------------------------------------------------


def _maps(found: Mapping[str, StoredFinding], image_bytes: int) -> list[tuple[str, list[Picture]]]:
    """Name and pictures of every layer, or of as many as fit, spread over the depth; before them the images.

    Of a layer: the mean of its channels for the first image and the last, and some channels one by one for the first.
    """
    maps, pictures = found.get("feature_maps"), found.get("pictures")
    if maps is None or pictures is None:
        return []
    layers, captions = list(maps.labels["layers"]), _captions(pictures)
    chosen = np.unique(np.linspace(0, len(layers) - 1, min(MOST_MAPS, len(layers))).round().astype(int)).tolist()
    budget = image_bytes // (1 + len(chosen))
    ends = [0, -1] if len(captions) > 1 else [0]
    rows = [("images", gallery(pictures.arrays["pixels"][ends], [{"words": captions[end]} for end in ends], budget))]
    for number in chosen:
        means_BHW, channels_BCHW = maps.arrays[f"mean.{number}"], maps.arrays[f"channels.{number}"]
        words = [f"mean of the channels of {layers[number]}, {captions[end]}" for end in ends]
        words += [f"a channel of {layers[number]}, {captions[0]}"] * channels_BCHW.shape[1]
        grey_KHW = _grey(np.concatenate([means_BHW[ends], channels_BCHW[0]]).astype(np.float32))
        rows.append((layers[number], gallery(grey_KHW[:, None], [{"words": one} for one in words], budget)))
    return [(name, shown.pictures) for name, shown in rows]


def _grey(maps_KHW: Array) -> NDArray[np.uint8]:
    """Each from its darkest to its brightest value."""
    low, high = maps_KHW.min((1, 2), keepdims=True), maps_KHW.max((1, 2), keepdims=True)
    return (255 * (maps_KHW - low) / np.maximum(high - low, 1e-12)).round().astype(np.uint8)


def _locality(found: StoredFinding | None, series: int) -> list[tuple[str, str]]:
    if found is None:
        return []
    panels = []
    for key, title in (
        ("distance", "How far heads look, in widths of the image"),
        ("near", "Share of attention on the 3 x 3 cells around"),
        ("entropy", "Spread (0: one cell, 1: all alike)"),
    ):
        arrays = (found.arrays[key], found.arrays[f"{key}_initial"], found.arrays[f"{key}_uniform"])
        panels.append((title, locality_panel(*arrays, name=f"{key}-{series}", title=title, series=series)))
    return panels


def locality_panel(now_LM: Array, initial_LM: Array, even_L1: Array, *, name: str, title: str, series: int) -> str:
    """A dot for every head, a line for their mean; dashed what it was untrained, dotted what looks everywhere."""
    width, height = 340, 230
    x = np.arange(1, len(now_LM) + 1)
    mean_L, initial_L = np.nanmean(now_LM, 1), np.nanmean(initial_LM, 1)
    with style(name):
        figure, axes = pixel_axes(width, height, left=46, right=12, top=10, bottom=46)
        axes.grid(axis="y", color=LINE, linewidth=1)
        axes.plot(x, even_L1[:, 0], color=SOFT, linewidth=1.2, linestyle=(0, (1.5, 1.5)))
        axes.plot(x, initial_L, color=INK, linewidth=1.4, linestyle=(0, (5, 2)))
        axes.plot(x, mean_L, color=color(series), linewidth=2, marker="o" if len(x) < 3 else "")
        for head_L in now_LM.T:
            axes.plot(x, head_L, color=color(series), linestyle="", marker="o", markersize=3.5, alpha=0.55)
        axes.set(xlim=(0.7, len(x) + 0.3), ylim=(0, None))
        axes.tick_params(axis="x", pad=8)
        axes.yaxis.set_major_locator(few_ticks())
        axes.xaxis.set_major_locator(few_ticks(integer=True))
        axes.set_xlabel("layer", fontsize=12, color=SOFT, labelpad=6)
        spoken = "; ".join(
            f"layer {n}: {a:.2f}, untrained {b:.2f}" for n, a, b in zip(x, mean_L, initial_L, strict=True)
        )
        return to_svg(figure, name, f"{title}. {spoken}", width)


def _layer_panels(found: Mapping[str, StoredFinding], series: int) -> list[tuple[str, str]]:
    """What the blocks hold: right answers of nearest neighbours, and directions in use."""
    panels = []
    for name, key, title, percent in (
        ("neighbours", "accuracy", "Right by nearest neighbours", True),
        ("rank", "rank", "Directions in use (effective rank)", False),
    ):
        if name in found:
            values = [float(value) for value in found[name].arrays[key]]
            curve = Curve([float(n) for n in range(1, len(values) + 1)], values, series, False)
            spoken = f"{title} by {_unit(found)}: " + ", ".join(f"{value:.3g}" for value in values)
            panels.append((title, curve_panel([curve], f"{name}-{series}", spoken, _unit(found), percent)))
    return panels
