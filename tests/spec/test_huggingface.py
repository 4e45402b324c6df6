"""A config.json may be anything: whatever comes in, a Model or a PlannerError that tells all problems comes out."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadInput, PlannerError, UnsupportedArchitecture
from planner.spec.architectures import ARCHITECTURES
from planner.spec.huggingface import read_config
from planner.spec.model import Attention, Mlp, Model, Norm

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip
GPT2: dict[str, Any] = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}


def llama(kind: str = "llama", **changed: Any) -> dict[str, Any]:
    return {**LLAMA, "model_type": kind, **changed}


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def problems(config: Any) -> dict[str, str | None]:
    """What is refused: field -> nearest valid value."""
    with pytest.raises(BadInput) as caught:
        read_config(config)
    return {problem.field: problem.nearest for problem in caught.value.problems}


# What is read.


def test_a_llama_is_read_as_its_shape() -> None:
    model = read_config(json.dumps(LLAMA), name="mine")
    assert (model.name, model.family, model.hidden, model.vocab, model.layers) == ("mine", "llama", 4096, 128256, 32)
    assert model.groups[0].attention == Attention(heads=32, kv_heads=8, head_dim=128)
    assert model.groups[0].mlp == Mlp(14336)
    assert model.groups[0].norm == Norm("rms", "pre", "input")
    assert not model.tied
    assert model.max_positions == 8192
    assert model.notes == ()


def test_a_model_keeps_its_configuration_and_can_be_hashed() -> None:
    model = read_config({**LLAMA, "rope_scaling": {"factor": 8.0}, "made_up": float("nan")})
    assert model.config == {**LLAMA, "rope_scaling": {"factor": 8.0}, "made_up": None}
    assert hash(model) == hash(read_config(model.config))
    assert model == read_config(json.dumps(model.config).encode())


def test_gpt2_keeps_its_own_names_dropouts_and_composed_gelu() -> None:
    model = read_config(GPT2)
    group = model.groups[0]
    fused = {"qkv_bias": True, "out_bias": True, "fused_qkv": True, "rope": False, "softmax_upcast": False}
    assert group.attention == Attention(12, 12, 64, **fused)
    assert group.mlp == Mlp(3072, gated=False, activation="gelu_composed", bias=True)
    assert group.norm == Norm("layer", "pre")
    assert (model.position, model.max_positions, model.tied) == ("learned", 1024, True)
    assert (model.dropout, model.attention_dropout) == (0.1, 0.1)


def test_gpt2_may_be_written_in_the_common_names() -> None:
    common = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 512}
    model = read_config({"model_type": "gpt2", "vocab_size": 50257, **common})
    assert (model.hidden, model.layers, model.max_positions) == (768, 12, 512)
    assert list(problems({"model_type": "gpt2", "vocab_size": 50257, **common, "hidden_size": 0})) == [
        "model.hidden_size"
    ]


@pytest.mark.parametrize(
    ("config", "attention", "mlp", "norm"),
    [
        (llama("mistral"), {"window": 4096}, {}, Norm()),
        (llama("mistral", sliding_window=None), {"window": None}, {}, Norm()),
        (llama("mixtral", num_experts_per_tok=1), {}, {"kind": "moe", "experts": 8, "experts_per_token": 1}, Norm()),
        (llama("qwen2", sliding_window=512), {"qkv_bias": True, "out_bias": False, "window": None}, {}, Norm()),
        (llama("qwen2", sliding_window=512, use_sliding_window=True), {"window": 512}, {}, Norm()),
        (llama("qwen3"), {"qk_norm": "head", "head_dim": 128, "qkv_bias": False}, {}, Norm()),
        (llama("qwen3_moe"), {"qk_norm": "head"}, {"ffn": 768, "experts": 128, "experts_per_token": 8}, Norm()),
        (llama("gemma"), {"head_dim": 256}, {"activation": "gelu"}, Norm("rms", "pre", "fp32")),
        (llama("gemma2"), {"softcap": True, "window": 4096}, {"gated": True}, Norm("rms", "sandwich", "fp32")),
        (llama("gemma3_text"), {"softcap": False, "qk_norm": "head"}, {}, Norm("rms", "sandwich", "fp32")),
        (llama("phi3"), {"fused_qkv": True, "out_bias": False}, {"fused_gate_up": True}, Norm()),
        (llama("olmo"), {"qk_norm": None}, {}, Norm("layer-plain")),
        (llama("olmo2"), {"qk_norm": "full"}, {}, Norm("rms", "post", "fp32")),
        (llama("gpt_neox"), {"fused_qkv": True, "kv_heads": 32, "qkv_bias": True}, {}, Norm("layer", "parallel")),
        (llama("gpt_neox", use_parallel_residual=False), {}, {"gated": False, "bias": True}, Norm("layer", "pre")),
        (llama(attention_bias=True, mlp_bias=True), {"qkv_bias": True, "out_bias": True}, {"bias": True}, Norm()),
        (llama(hidden_act="relu"), {}, {"activation": "relu"}, Norm()),
        (llama(head_dim=64), {"head_dim": 64}, {}, Norm()),
    ],
)
def test_each_architecture_means_its_shape(config: Any, attention: Any, mlp: Any, norm: Norm) -> None:
    model = read_config(config)
    (group,) = model.groups
    assert {key: getattr(group.attention, key) for key in attention} == attention
    assert {key: getattr(group.mlp, key) for key in mlp} == mlp
    assert group.norm == norm
    assert model.family == config["model_type"]
    assert model.tied == config["model_type"].startswith("gemma")


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ({"mlp_only_layers": [0, 1]}, [(2, "dense"), (6, "moe")]),
        ({"mlp_only_layers": [7]}, [(7, "moe"), (1, "dense")]),
        ({"decoder_sparse_step": 4}, [(3, "dense"), (1, "moe"), (3, "dense"), (1, "moe")]),
        ({"decoder_sparse_step": 9}, [(8, "dense")]),
        ({"mlp_only_layers": None}, [(8, "moe")]),
    ],
)
def test_layers_without_experts_become_groups(layers: dict[str, Any], expected: list[Any]) -> None:
    model = read_config(llama("qwen3_moe", num_hidden_layers=8, **layers))
    assert [(group.count, group.mlp.kind) for group in model.groups] == expected
    assert {group.mlp.ffn for group in model.groups if group.mlp.kind == "dense"} <= {14336}


def test_a_long_alternation_is_gathered_and_says_so() -> None:
    model = read_config(llama("qwen3_moe", num_hidden_layers=40, decoder_sparse_step=2))
    assert [(group.count, group.mlp.kind) for group in model.groups] == [(20, "dense"), (20, "moe")]
    assert any("alternate" in note for note in model.notes)


def test_of_a_multimodal_gemma_3_the_text_part_is_read() -> None:
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    model = read_config({"model_type": "gemma3", "text_config": text, "vision_config": {}})
    assert (model.family, model.vocab, model.groups[0].attention.kv_heads) == ("gemma3_text", 262208, 4)
    assert any("text part only" in note for note in model.notes)
    assert any("vocab_size 262208" in note for note in model.notes)
    changed = read_config({"model_type": "gemma3", "text_config": text, "num_hidden_layers": 6})
    assert (changed.layers, changed.hidden) == (6, 2560)
    del text["hidden_size"]
    assert problems({"model_type": "gemma3", "text_config": text}) == {"model.text_config.hidden_size": "4096"}
    assert list(problems({"model_type": "gemma3", "text_config": None})) == ["model.text_config"]


def test_without_a_model_type_it_is_read_as_llama_like_and_says_so() -> None:
    model = read_config(without(LLAMA, "model_type"))
    assert model.notes == ("model_type missing: read as Llama-like",)
    assert model.groups == read_config(LLAMA).groups


def test_without_a_model_type_the_class_may_tell() -> None:
    model = read_config({**without(LLAMA, "model_type"), "architectures": ["Qwen2ForCausalLM"]})
    assert model.family == "qwen2"
    assert model.groups[0].attention.qkv_bias


def test_null_means_the_default() -> None:
    nulls = dict.fromkeys(("head_dim", "num_key_value_heads", "attention_bias", "tie_word_embeddings", "hidden_act"))
    assert read_config({**LLAMA, **nulls}).groups[0].attention == Attention(32, 32, 128)


def test_keys_of_no_interest_may_hold_anything() -> None:
    odd = {"torch_dtype": 5, "rope_theta": "many", "quantization_config": [{}], "": None, "mlp_only_layers": 3}
    assert read_config({**LLAMA, **odd}).groups == read_config(LLAMA).groups


def test_of_a_repeated_key_the_last_counts() -> None:
    text = json.dumps(LLAMA)[:-1] + ', "hidden_size": 2048}'
    assert read_config(text).hidden == 2048


def test_a_byte_order_mark_is_no_obstacle() -> None:
    assert read_config(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode()).hidden == 4096


# What is refused.


def test_every_problem_is_told_at_once() -> None:
    text = json.dumps(llama(
        hidden_size="4096", num_hidden_layers=True, num_attention_heads=0, intermediate_size=10**40,
        vocab_size=float("nan"), attention_dropout=1.5, hidden_act="swiglu", tie_word_embeddings="false",
        max_position_embeddings=None, num_key_value_heads=-8, head_dim=64.0,
    ))  # fmt: skip
    assert problems(text) == {
        "model.hidden_size": "4096",
        "model.num_hidden_layers": "32",
        "model.num_attention_heads": "1",
        "model.intermediate_size": "10000000",
        "model.vocab_size": "32000",
        "model.attention_dropout": "1",
        "model.hidden_act": "silu",
        "model.tie_word_embeddings": "false",
        "model.num_key_value_heads": "1",
        "model.head_dim": "64",
    }


def test_problems_between_keys_stand_beside_problems_of_keys() -> None:
    assert problems(llama(num_key_value_heads=7, vocab_size=0)) == {
        "model.num_key_value_heads": "8",
        "model.vocab_size": "1",
    }


def test_an_empty_object_names_what_a_model_needs() -> None:
    assert problems({}) == {
        "model.model_type": "llama",
        "model.hidden_size": "4096",
        "model.intermediate_size": "11008",
        "model.num_hidden_layers": "32",
        "model.num_attention_heads": "32",
        "model.vocab_size": "32000",
    }


@pytest.mark.parametrize(
    "key", ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"]
)
@pytest.mark.parametrize(
    "value", ["4096", "many", "", True, 0, -1, 10**18, 10**400, 1.5, float("nan"), float("inf"), -1e999, [], {}]
)
def test_a_size_that_is_no_sensible_whole_number_is_refused_by_name(key: str, value: Any) -> None:
    found = problems({**LLAMA, key: value})
    assert list(found) == [f"model.{key}"]
    near = found[f"model.{key}"]
    assert near is not None
    assert read_config({**LLAMA, key: json.loads(near)})


@pytest.mark.parametrize(
    ("key", "largest"),
    [
        ("hidden_size", 1_000_000), ("num_hidden_layers", 10_000), ("vocab_size", 100_000_000),
        ("num_attention_heads", 100_000), ("num_key_value_heads", 100_000), ("num_local_experts", 100_000),
    ],
)  # fmt: skip
def test_astronomical_sizes_are_refused_and_the_largest_is_named(key: str, largest: int) -> None:
    with pytest.raises(BadInput, match=f"model.{key}: {largest + 1} is too large: at most {largest:,}"):
        read_config(llama("mixtral", **{key: largest + 1}))


@pytest.mark.parametrize(
    ("config", "field", "near"),
    [
        (llama(num_key_value_heads=12), "num_key_value_heads", "8"),
        (llama(num_key_value_heads=64), "num_key_value_heads", "32"),
        (llama(hidden_size=4100), "hidden_size", "4096"),
        (llama("qwen3", num_attention_heads=33), "num_key_value_heads", "11"),
        (llama("mixtral", num_experts_per_tok=9), "num_experts_per_tok", "8"),
        (llama("mixtral", num_experts=1), "num_experts_per_tok", "1"),
        (llama("qwen3_moe", num_experts=4), "num_experts_per_tok", "4"),
        (llama("qwen3_moe", mlp_only_layers=["1", 2, None]), "mlp_only_layers", "[]"),
        ({**GPT2, "n_embd": 770}, "n_embd", "768"),
        ({**GPT2, "activation_function": "gelu_newer"}, "activation_function", "gelu_new"),
        (llama("gemma2", hidden_activation="nothing"), "hidden_activation", None),
        (llama("gpt_neox", hidden_size=4100), "hidden_size", "4096"),
        (llama(attention_bias=1), "attention_bias", "true"),
    ],
)
def test_keys_that_contradict_each_other(config: dict[str, Any], field: str, near: str | None) -> None:
    found = problems(config)
    assert list(found) == [f"model.{field}"]
    assert near is None or found[f"model.{field}"] == near


def test_an_explicit_head_size_frees_the_width() -> None:
    assert read_config(llama(hidden_size=5000, head_dim=128)).groups[0].attention.head_dim == 128


@pytest.mark.parametrize(
    ("kind", "near"),
    [("lama", "llama"), ("qwen2_moe", "qwen3_moe"), ("gemma4_text", "gemma3_text"), ("Llama", "llama")],
)
def test_an_unknown_architecture_names_the_nearest(kind: str, near: str) -> None:
    with pytest.raises(UnsupportedArchitecture) as caught:
        read_config(llama(kind), field="case.model")
    (problem,) = caught.value.problems
    assert (problem.field, problem.nearest) == ("case.model.model_type", near)
    assert repr(kind) in problem.problem


@pytest.mark.parametrize("kind", ["t5", "deepseek_v3", "x" * 100_000, "\ud800", ""])
def test_an_architecture_like_nothing_known_lists_what_is(kind: str) -> None:
    with pytest.raises(UnsupportedArchitecture) as caught:
        read_config(llama(kind))
    assert caught.value.problems[0].nearest
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{", "[]", "null", "1", '"llama"', "NaN", "{'model_type': 'llama'}", '{"model_type": "llama",}', "\0",
        b"\xff\xfe{\x00", "[" * 100_000, '{"a":' * 100_000, "[" * 400_000 + "]" * 400_000,
        '{"hidden_size": 1' + "0" * 9999 + "}", '{"a": ' * 25 + "1" + "}" * 25, '{"a": ' + "[" * 25 + "]" * 25 + "}",
        '{"model_type": ["llama"]}', '{"model_type": true}',
    ],
)  # fmt: skip
def test_what_is_no_configuration_at_all_is_refused_in_one_line(text: str | bytes) -> None:
    with pytest.raises(BadInput) as caught:
        read_config(text)
    assert len(caught.value.problems) == 1
    assert str(caught.value).startswith("model")
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_nesting_is_bounded_where_it_is_not_read_either() -> None:
    deep: Any = 1
    for _ in range(19):
        deep = [deep]
    assert read_config({**LLAMA, "unread": deep}).hidden == 4096
    with pytest.raises(BadInput, match="nested too deeply"):
        read_config({**LLAMA, "unread": [deep]})


def test_objects_that_are_not_json_are_refused() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    for odd in (circle, {"hidden_size": object()}, {("a", "b"): 1}, {"hidden_size": {1, 2}}):
        with pytest.raises(BadInput):
            read_config(odd)


@pytest.mark.parametrize("letter", ["x", " ", "[", "9"])
def test_a_huge_text_is_refused_before_it_is_parsed(letter: str) -> None:
    text = letter * 50_000_000
    start = time.perf_counter()
    with pytest.raises(BadInput, match=r"1,000,000 bytes"):
        read_config(text)
    assert time.perf_counter() - start < 0.1


def test_a_text_just_within_the_limit_is_read() -> None:
    padded = json.dumps(LLAMA).ljust(1_000_000)
    assert read_config(padded).hidden == 4096
    with pytest.raises(BadInput):
        read_config(padded + " ")


# Anything at all.

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
KEYS = sorted({key for made in ARCHITECTURES.values() for key in made.config.model_fields})
VALUES = SCALARS | st.integers(-2, 200) | st.sampled_from([10**5, 10**9, 10**400, "8", "8.5", "gelu", "silu"])
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))


def accepted(config: Any) -> Model | None:
    """The model, or None when it was refused in the planner's own words; anything else fails the test."""
    start = time.perf_counter()
    try:
        return read_config(config)
    except PlannerError as error:
        refused = error.problems
    finally:
        assert time.perf_counter() - start < 10  # does not hang; a shared machine pauses
    assert refused
    for problem in refused:
        assert problem.field.startswith("model")
        assert len(str(problem)) < 1000
    return None


@given(JSON)
def test_any_json_is_read_or_refused(value: Any) -> None:
    accepted(json.dumps(value))
    accepted(value if isinstance(value, dict) else {"model_type": value})


@given(st.text() | st.binary())
def test_any_text_is_refused(text: str | bytes) -> None:
    assert accepted(text) is None


@given(st.sampled_from(sorted(ARCHITECTURES)), st.dictionaries(st.sampled_from(KEYS), VALUES | JSON, max_size=6))
def test_any_change_to_a_good_configuration_is_read_or_refused(kind: str, changes: dict[str, Any]) -> None:
    model = accepted({**LLAMA, **GPT2, "model_type": kind, **changes})
    if model is not None:
        for group in model.groups:
            assert group.attention.heads % group.attention.kv_heads == 0
            assert min(group.count, group.attention.head_dim, group.mlp.ffn, model.hidden, model.vocab) >= 1
            assert type(model.hidden) is int
