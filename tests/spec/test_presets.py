"""Models by name, by file, by id and by size; nothing here reaches for the network."""

from __future__ import annotations

import email.message
import io
import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import paths
from planner.errors import BadInput, MissingDependency, PlannerError, UnknownPreset
from planner.layers.model import parameters
from planner.spec import hub, presets
from planner.spec.catalog import spelling
from planner.spec.presets import model, models, shape, shape_for

TINY = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 1000,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("HF_TOKEN", raising=False)


def size(made: Any) -> float:
    return float(parameters(made).value)


# Names


def test_every_file_is_a_preset_that_reads() -> None:
    files = {path.stem for path in (paths.data() / "models").glob("*.json")}
    assert {preset.name for preset in models()} == files
    assert len(files) >= 40
    for preset in models():
        made = model(preset.name)
        assert made.name == preset.name
        assert made.source == preset.source
        assert preset.hf_id in preset.source
        assert preset.title
        assert "_headroom" not in made.config


def test_no_two_models_answer_to_one_name() -> None:
    spellings = [spelling(s) for p in models() for s in {p.name, p.hf_id, *p.aliases}]
    assert sorted(spellings) == sorted(set(spellings))


def test_every_alias_finds_its_model() -> None:
    for preset in models():
        for alias in (preset.hf_id, *preset.aliases):
            assert model(alias).name == preset.name


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("llama-3-8b", "llama-3-8b"),
        (" LLaMA-3-8B ", "llama-3-8b"),
        ("Llama 3 8B", "llama-3-8b"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("META-LLAMA/meta-llama-3-8b", "llama-3-8b"),
        ("llama3.1-405b", "llama-3.1-405b"),
        ("qwen3_30b_a3b", "qwen3-30b-a3b"),
        ("olmo2-7b", "olmo-2-7b"),
    ],
)
def test_spelling_does_not_matter(name: str, preset: str) -> None:
    assert model(name).name == preset


def test_an_unknown_name_proposes_the_nearest() -> None:
    with pytest.raises(UnknownPreset) as caught:
        model("lama-3-8b", field="case.model")
    (problem,) = caught.value.problems
    assert (problem.field, problem.nearest) == ("case.model", "llama-3-8b")


@given(st.text(max_size=60) | st.sampled_from(["\0", "~", "~x/y", "/", ".", "..", "a/..", "x" * 9999, "{", "-", "-1B"]))
def test_any_name_is_found_or_refused(name: str) -> None:
    try:
        said = f"model {model(name).hidden}"
    except PlannerError as error:
        said = str(error)
    assert said.startswith("model")


# Files


def test_a_file_its_folder_and_its_text_are_the_same_model(tmp_path: Path) -> None:
    path = tmp_path / "tiny" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(TINY), encoding="utf-8")
    by_file, by_folder, by_text = model(str(path)), model(str(path.parent)), model(json.dumps(TINY))
    assert by_file == by_folder
    assert by_file.groups == by_text.groups
    assert (by_file.name, by_file.hidden) == ("tiny", 64)


def test_a_file_with_problems_names_each_under_the_field(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**TINY, "hidden_size": 0, "vocab_size": "x"}), encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        model(str(path), field="case.model")
    assert [p.field for p in caught.value.problems] == ["case.model.hidden_size", "case.model.vocab_size"]


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(500_000_000)  # sparse: nothing is written
    start = time.perf_counter()
    with pytest.raises(BadInput, match="larger than"):
        model(str(path))
    assert time.perf_counter() - start < 0.2


def test_a_path_to_nothing_says_so() -> None:
    with pytest.raises(BadInput, match="there is no file"):
        model("configs/none.json")


def test_a_strangers_name_reads_no_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY), encoding="utf-8")
    with pytest.raises(UnknownPreset):
        model(str(path), files=False)


def test_a_preset_may_be_the_published_file_and_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "plain.json").write_text(json.dumps(TINY), encoding="utf-8")
    monkeypatch.setattr(paths, "data", lambda: tmp_path)
    for cached in (presets._files, presets._preset, presets._spellings, presets._model):
        cached.cache_clear()
    try:
        assert model("Plain").hidden == 64
        assert [p.title for p in models()] == ["plain"]
    finally:
        for cached in (presets._files, presets._preset, presets._spellings, presets._model):
            cached.cache_clear()


# Sizes


@pytest.mark.parametrize("text", ["1B", "1.5B", "3b", "7B", "8e9", "13B", "20B", "40B", "70B", "150B", "405B", "1T"])
def test_a_size_becomes_the_contract_shape_of_about_that_size(text: str) -> None:
    made = model(text)
    params = presets.units.parse_count(text)
    assert params
    assert abs(size(made) / params - 1) < 0.03
    (group,) = made.groups
    assert (group.attention.head_dim, group.attention.kv_heads) == (128, 8)
    assert group.attention.heads * 128 == made.hidden
    assert group.mlp.ffn == 3.5 * made.hidden
    assert (made.vocab, made.tied, made.config) == (128_256, False, None)
    assert 40 <= made.hidden / made.layers <= 400
    (note,) = made.notes
    for part in (f"{made.layers} layers", f"hidden {made.hidden:,}", f"{int(size(made)):,} parameters", "untied"):
        assert part in note


@pytest.mark.parametrize("params", [20e9, 40e9, 71.3e9, 150e9])
def test_from_20b_to_150b_the_width_is_8192_and_the_depth_is_solved(params: float) -> None:
    made = shape_for(params)
    assert made.hidden == 8192
    layer = size(shape(8192, 2)) - size(shape(8192, 1))
    assert abs(size(made) - params) <= layer / 2


def test_sizes_of_llama_3_become_its_width_and_depth() -> None:
    assert (shape_for(8.03e9).hidden, shape_for(8.03e9).layers) == (4096, 32)
    assert (shape_for(70.55e9).hidden, shape_for(70.55e9).layers) == (8192, 80)
    assert shape_for(405e9).hidden == 16384


@given(st.floats(1e9, 1e15))
def test_from_a_billion_on_every_size_is_met_within_3_percent(params: float) -> None:
    made = shape_for(params)
    assert abs(size(made) / params - 1) < 0.03
    assert (made.vocab, made.tied) == (128_256, False)


@given(st.floats(1e6, 1e9))
def test_small_sizes_get_a_smaller_vocabulary_rather_than_no_layers(params: float) -> None:
    made = shape_for(params)
    assert abs(size(made) / params - 1) < 0.10
    embedding = made.vocab * made.hidden * (1 if made.tied else 2)
    assert embedding <= 0.75 * params
    assert made.tied or made.vocab == 128_256
    assert len(made.notes) == (2 if made.tied else 1)


def test_a_hundred_million_has_a_tied_head_and_says_why() -> None:
    made = model("100M")
    assert (made.tied, made.vocab) == (True, 32_000)
    assert "too much of so small a model" in made.notes[1]


@pytest.mark.parametrize(
    ("params", "near"),
    [(0.0, "1M"), (-7e9, "1M"), (999_999.0, "1M"), (1.1e15, "1000T"), (float("inf"), "1000T"), (float("nan"), "1M")],
)
def test_sizes_that_make_no_sense_are_refused(params: float, near: str) -> None:
    with pytest.raises(BadInput) as caught:
        shape_for(params, field="case.model")
    (problem,) = caught.value.problems
    assert (problem.field, problem.nearest) == ("case.model", near)


@pytest.mark.parametrize("text", ["0", "0B", "-7B", "12", "1e300", "2000T"])
def test_sizes_in_words_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        model(text)


def test_a_shape_of_arrays_is_row_by_row_the_single_shape() -> None:
    widths, depths = np.array([512, 768, 1024, 1280, 8192]), np.array([3, 5, 7, 11, 80])
    counts = parameters(shape(widths, depths)).value
    single = [size(shape(int(h), int(n))) for h, n in zip(widths, depths, strict=True)]
    assert np.array_equal(counts, single)


def test_narrow_shapes_have_heads_of_64_and_heads_divide() -> None:
    assert (shape(512, 1).groups[0].attention.heads, shape(512, 1).groups[0].attention.head_dim) == (8, 64)
    for hidden in range(64, 20_000, 64):
        att = shape(hidden, 1).groups[0].attention
        assert att.heads * att.head_dim == hidden
        assert att.heads % att.kv_heads == 0
        assert att.kv_heads <= 8


@pytest.mark.parametrize(("hidden", "ffn"), [(64, 256), (128, 512), (320, 1024), (768, 2816), (4096, 14336)])
def test_the_ffn_is_the_multiple_of_256_nearest_to_3_5_times_the_width(hidden: int, ffn: int) -> None:
    assert shape(hidden, 1).groups[0].mlp.ffn == ffn


@pytest.mark.parametrize("hidden", [0, -64, 63, 100, 8191])
def test_a_width_that_no_heads_fill_is_refused(hidden: int) -> None:
    with pytest.raises(BadInput):
        shape(hidden, 1)


# The hub, which is never asked here


class Hub:
    """Stands in for the hub: answers with what it was given, and keeps the question."""

    def __init__(self, answer: bytes | Exception):
        self.answer, self.asked = answer, []  # type: tuple[bytes | Exception, list[urllib.request.Request]]

    def open(self, request: urllib.request.Request, timeout: float) -> Any:
        assert timeout <= 10
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return io.BufferedReader(io.BytesIO(self.answer))  # type: ignore[arg-type]


def refused(code: int, **headers: str) -> urllib.error.HTTPError:
    message = email.message.Message()
    for key, value in headers.items():
        message[key.replace("_", "-")] = value
    return urllib.error.HTTPError("https://huggingface.co", code, "", message, io.BytesIO())


def ask(monkeypatch: pytest.MonkeyPatch, answer: bytes | Exception, name: str = "some/model") -> Any:
    stand_in = Hub(answer)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(hub, "_opener", lambda: stand_in)
    return model(name), stand_in.asked


def test_offline_an_unknown_id_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_opener", lambda: pytest.fail("the network was asked"))
    with pytest.raises(MissingDependency, match=r"this machine is offline: paste or pass the config\.json"):
        model("some/model")


def test_an_id_is_read_from_its_config_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    made, (request,) = ask(monkeypatch, json.dumps(TINY).encode())
    assert (made.name, made.hidden) == ("some/model", 64)
    assert made.source == request.full_url == "https://huggingface.co/some/model/resolve/main/config.json"
    assert request.get_header("Authorization") == "Bearer hf_secret"


def test_a_token_that_is_none_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "two\r\nX-Evil: lines")
    _, (request,) = ask(monkeypatch, json.dumps(TINY).encode())
    assert not request.has_header("Authorization")


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (refused(401), BadInput, "gated: accept the licence and pass config.json instead"),
        (refused(403), BadInput, "gated"),
        (refused(401, X_Error_Code="RepoNotFound"), UnknownPreset, "has no some/model"),
        (refused(404), UnknownPreset, "has no some/model"),
        (refused(503), BadInput, "answered 503"),
        (urllib.error.URLError("no route"), MissingDependency, "this machine is offline"),
        (TimeoutError(), MissingDependency, "this machine is offline"),
        (ConnectionResetError(), MissingDependency, "this machine is offline"),
        (b"x" * 2_000_000, BadInput, "larger than 1,000,000 bytes"),
        (b"<html>", BadInput, "not JSON"),
        (json.dumps({**TINY, "model_type": "llamma"}).encode(), PlannerError, "llamma"),
    ],
)
def test_what_the_hub_refuses_is_said_plainly(
    monkeypatch: pytest.MonkeyPatch, answer: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        ask(monkeypatch, answer)


@pytest.mark.parametrize(
    "name", ["../etc", "a/b/c", "a/..", "a/b?x=1", "a/b#c", "a /b", "-a/b", "a/" + "b" * 200, "ä/b"]
)
def test_what_is_no_id_is_never_asked_for(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(hub, "_opener", lambda: pytest.fail("the network was asked"))
    assert not hub.looks_like_id(name)
    with pytest.raises(PlannerError):
        model(name)
    with pytest.raises(BadInput):
        hub.huggingface_config(name)


@pytest.mark.parametrize(
    ("to", "keeps_token"),
    [
        ("https://huggingface.co/api/resolve-cache/x", True),
        ("https://cdn-lfs.hf.co/x", False),
        ("https://cdn-lfs.huggingface.co/x", False),
        ("https://evil.example/x", None),
        ("https://nothuggingface.co/x", None),
        ("http://huggingface.co/x", None),
        ("file:///etc/passwd", None),
    ],
)
def test_a_redirect_stays_with_the_hub_and_the_token_with_its_host(to: str, keeps_token: bool | None) -> None:
    request = urllib.request.Request(hub.address("a/b"), headers={"Authorization": "Bearer x"})  # noqa: S310, not opened
    headers = email.message.Message()
    follow = hub._Redirects().redirect_request
    if keeps_token is None:
        with pytest.raises(urllib.error.HTTPError) as caught:
            follow(request, io.BytesIO(), 302, "", headers, to)
        caught.value.close()
    else:
        assert follow(request, io.BytesIO(), 302, "", headers, to).has_header("Authorization") == keeps_token


def test_a_slow_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(hub.time, "monotonic", lambda: next(clock))
    with pytest.raises(TimeoutError):
        hub._read(lambda _: b" ", "some/model", "model")
