"""The charts: valid, drawn, in the language in use, and with a sentence that says what they show."""

from __future__ import annotations

import copy
import html
import io
import json
import re
from collections.abc import Callable
from typing import Any

import altair as alt
import pandas as pd
import pytest
from PIL import Image

import planner
from planner import answers, i18n
from planner.charts import largest, memory, theme
from planner.step.breakdown import PARTS

TOO_MUCH = {"model": "llama-3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 2}, "recipe": {"seq_len": 8192}}
PIPELINE = {
    "model": "llama-3.1-70b",
    "cluster": {"gpu": "h100-sxm", "gpus": 16},
    "recipe": {"framework": "megatron-lm"},
    "plan": {"tp": 4, "pp": 4},
}
SMALL = {"model": "gpt2", "cluster": {"gpu": "h100-sxm", "gpus": 1}}

Spec = Callable[..., dict[str, Any]]
Rows = Callable[[dict[str, Any]], pd.DataFrame]

MEMORY: dict[str, tuple[Spec, Rows]] = {
    "breakdown": (memory.breakdown_spec, memory.breakdown_rows),
    "moments": (memory.moments_spec, memory.moments_rows),
    "stages": (memory.stages_spec, memory.stages_rows),
}


@pytest.fixture(scope="module")
def fits() -> dict[str, dict[str, Any]]:
    cases = {"too much": TOO_MUCH, "pipeline": PIPELINE, "small": SMALL}
    return {name: answers.fit(planner.evaluate(planner.load_case(raw))) for name, raw in cases.items()}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return answers.largest(planner.largest_model({"gpu": "h100-sxm", "gpus": 8}))


@pytest.fixture
def shouting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second language: English in capitals, names of values left as they are."""
    english = i18n.table("en")
    loud = {k: re.sub(r"[^{}]+(?![^{]*\})", lambda m: m.group().upper(), v) for k, v in english.items()}
    monkeypatch.setattr(i18n, "languages", lambda: ("en", "loud"))
    monkeypatch.setattr(i18n, "table", lambda language: loud if language == "loud" else english)


def texts(svg: str) -> list[str]:
    """What a picture says, piece by piece."""
    return [html.unescape(re.sub("<[^>]+>", "", one)) for one in re.findall(r"<text[^>]*>(.*?)</text>", svg, re.DOTALL)]


def marks(svg: str) -> dict[str, int]:
    """By layer, how many marks a picture draws."""
    pieces = re.split(r'<g class="mark-\w+ role-mark (layer_\d+_marks)"([^>]*)>', svg)
    return {
        layer: 0 if opening.endswith("/") else len(re.findall(r"<(?:path|text|line)\b", body.split("</g>")[0]))
        for layer, opening, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True)
    }


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", MEMORY)
def test_every_specification_is_valid_and_holds_no_rows(name: str, dark: bool) -> None:
    spec = MEMORY[name][0](dark=dark)
    assert spec["data"] == {"name": theme.ROWS}
    assert "datasets" not in spec
    alt.Chart.from_dict(spec)
    json.dumps(spec, allow_nan=False)


def test_the_specification_of_the_largest_is_valid() -> None:
    alt.Chart.from_dict(largest.spec())
    assert largest.spec() != largest.spec(dark=True)


@pytest.mark.parametrize("name", MEMORY)
def test_a_changed_specification_leaves_the_next_one_alone(name: str) -> None:
    spec = MEMORY[name][0]
    before = copy.deepcopy(spec())
    spec()["layer"].clear()
    assert spec() == before


@pytest.mark.parametrize("case", ["too much", "pipeline", "small"])
@pytest.mark.parametrize("name", MEMORY)
def test_every_layer_is_drawn(name: str, case: str, fits: dict[str, dict[str, Any]]) -> None:
    spec, rows = MEMORY[name]
    data = rows(fits[case])
    drawn = marks(theme.svg(spec(), data))
    empty = [layer for layer, count in drawn.items() if count == 0]
    assert len(drawn) == len(spec()["layer"])
    if name == "breakdown" and not (data["place"] == "before").any():
        assert len(empty) == 1  # no number stands before its bar here
    else:
        assert not empty


def test_the_largest_is_drawn(found: dict[str, Any]) -> None:
    assert all(marks(theme.svg(largest.spec(), largest.rows(found))).values())


@pytest.mark.parametrize("case", ["too much", "pipeline", "small"])
def test_parts_stack_up_to_the_device(case: str, fits: dict[str, dict[str, Any]]) -> None:
    rows = memory.breakdown_rows(fits[case])
    parts, total = rows[rows["role"] == "part"], rows[rows["role"] == "total"].iloc[0]
    assert list(parts["start_gib"])[1:] == pytest.approx(list(parts["end_gib"])[:-1])
    assert parts["end_gib"].iloc[-1] == pytest.approx(total["end_gib"])
    assert total["low_gib"] < total["end_gib"] < total["high_gib"] <= total["domain_gib"]
    assert parts["share"].sum() == pytest.approx(1)


def test_every_part_has_a_group_and_a_name() -> None:
    assert {part for parts in memory.GROUPS.values() for part in parts} == set(PARTS)
    assert all(i18n.has(f"part.{part}") for part in PARTS)


@pytest.mark.parametrize("name", MEMORY)
def test_bars_are_labelled_in_order(name: str, fits: dict[str, dict[str, Any]]) -> None:
    spec, rows = MEMORY[name]
    data = rows(fits["pipeline"])
    said = texts(theme.svg(spec(), data))
    where = [said.index(label) for label in data["label"]]
    assert where == sorted(where)
    assert set(data["text"]) <= set(said)


def test_the_peak_and_the_worst_are_marked_in_words(fits: dict[str, dict[str, Any]]) -> None:
    moments, stages = memory.moments_rows(fits["pipeline"]), memory.stages_rows(fits["pipeline"])
    assert "peak" in moments[moments["most"]]["text"].item()
    assert "worst" in stages[stages["most"]]["text"].item()
    assert moments[moments["most"]]["label"].item() == "backward of a layer"


@pytest.mark.parametrize("name", MEMORY)
def test_labels_follow_the_language(name: str, fits: dict[str, dict[str, Any]], shouting: None) -> None:
    spec, rows = MEMORY[name]
    english = theme.svg(spec(), rows(fits["pipeline"]))
    i18n.use("loud")
    try:
        loud = theme.svg(spec(), rows(fits["pipeline"]))
    finally:
        i18n.use("en")
    assert theme.svg(spec(), rows(fits["pipeline"])) == english
    lower = [said for said in texts(loud) if re.search("[a-z]", said)]
    assert not lower
    assert any(re.search("[a-z]", said) for said in texts(english))


def test_alternative_texts_say_the_finding(fits: dict[str, dict[str, Any]], found: dict[str, Any]) -> None:
    fit = fits["pipeline"]
    said = memory.breakdown_alt(fit)
    assert said.startswith("Does not fit")
    assert f"{fit['device_gib']:.1f} GiB" in said
    assert "Optimizer states" in said
    assert "backward of a layer" in memory.moments_alt(fit)
    assert memory.stages_alt(fit).startswith("Stage 0 needs the most")
    best = max(found["regimes"], key=lambda one: one["params"])
    assert f"{best['recipe']}: " in largest.alt_text(found)
    assert f"at most {best['params'] / 1e9:.0f}" in largest.alt_text(found)


def test_nothing_trains_is_said_too(found: dict[str, Any]) -> None:
    none = {"regimes": [{**one, "params": 0, "params_comfortable": 0} for one in found["regimes"]]}
    assert largest.alt_text(none) == i18n.t("chart.largest.alt_none")
    assert i18n.t("chart.largest.none") in texts(theme.svg(largest.spec(), largest.rows(none)))


def dark_pixels(png: bytes, box: tuple[int, int, int, int]) -> int:
    picture = Image.open(io.BytesIO(png)).convert("RGBA")
    page = Image.new("RGBA", picture.size, "white")
    page.alpha_composite(picture)
    return sum(page.convert("L").crop(box).histogram()[:100])


def test_text_is_drawn(fits: dict[str, dict[str, Any]]) -> None:
    """The renderer draws no text at all, and says nothing, where it finds no font of the family."""
    spec, rows = memory.moments_spec(), memory.moments_rows(fits["pipeline"])
    strip = (0, 0, 700, 40)  # the title stands here and nothing else
    assert dark_pixels(theme.png(spec, rows), strip) > 500
    assert dark_pixels(theme.png({**spec, "title": None}, rows), strip) < 500


def test_every_colour_stands_out_from_its_page() -> None:
    for palette, page in ((theme.LIGHT, "#FFFFFF"), (theme.DARK, "#0E1117")):
        for name in ("blue", "orange", "plum", "violet", "grey", "ink", "soft"):
            assert contrast(palette[name], page) >= 3, name


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
