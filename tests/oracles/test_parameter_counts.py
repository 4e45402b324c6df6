"""Parameters of every model against transformers' own classes on the meta device, and against published totals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner import paths
from planner.layers.model import parameters
from planner.spec.architectures import ARCHITECTURES
from planner.spec.huggingface import MULTIMODAL, read_config
from planner.spec.presets import model, models

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.oracle, pytest.mark.xdist_group("torch")]  # one process imports torch, once

NAMES = [preset.name for preset in models()]

# Totals as their publishers state them: the safetensors total on the model's Hugging Face page (for Gemma 3 less the
# vision tower and projector of that page's file), the table of the Pythia repository, the GPT-2 and GPT-NeoX papers'
# checkpoints. Entered by hand. Tied heads are counted once.
PUBLISHED = {
    "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200,
    "pythia-70m": 70_426_624, "pythia-160m": 162_322_944, "pythia-410m": 405_334_016, "pythia-1b": 1_011_781_632,
    "pythia-1.4b": 1_414_647_808, "pythia-2.8b": 2_775_208_960, "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320, "gpt-neox-20b": 20_554_567_680,
    "llama-2-7b": 6_738_415_616, "llama-2-13b": 13_015_864_320, "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248, "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248, "llama-3.1-70b": 70_553_706_496, "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400, "llama-3.2-3b": 3_212_749_824, "llama-3.3-70b": 70_553_706_496,
    "tinyllama-1.1b": 1_100_048_384, "codellama-34b": 33_743_970_304,
    "yi-6b": 6_061_035_520, "yi-34b": 34_388_917_248,
    "smollm2-135m": 134_515_008, "smollm2-360m": 361_821_120, "smollm2-1.7b": 1_711_376_384,
    "mistral-7b": 7_241_732_096, "mistral-7b-v0.3": 7_248_023_552, "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200, "mistral-large-123b": 122_610_069_504,
    "mixtral-8x7b": 46_702_792_704, "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-0.5b": 494_032_768, "qwen2.5-1.5b": 1_543_714_304, "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512, "qwen2.5-14b": 14_770_033_664, "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-4b": 4_022_468_096, "qwen3-8b": 8_190_735_360, "qwen3-14b": 14_768_307_200, "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624, "qwen3-235b-a22b": 235_093_634_560,
    "gemma-2b": 2_506_172_416, "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888, "gemma-2-9b": 9_241_705_984, "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952, "gemma-3-4b": 3_880_263_168, "gemma-3-12b": 11_766_034_176,
    "gemma-3-27b": 27_009_346_304,
    "phi-3-mini": 3_821_079_552, "phi-3-medium": 13_960_238_080, "phi-4": 14_659_507_200,
    "olmo-1b": 1_176_764_416, "olmo-7b": 6_888_095_744,
    "olmo-2-1b": 1_484_916_736, "olmo-2-7b": 7_298_617_344, "olmo-2-13b": 13_716_198_400, "olmo-2-32b": 32_234_279_936,
}  # fmt: skip

SMALL: dict[str, Any] = {
    "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5, "num_attention_heads": 6,
    "num_key_value_heads": 2, "vocab_size": 51_000, "max_position_embeddings": 64, "num_experts_per_tok": 2,
}  # fmt: skip
GPT2 = {"n_embd": 192, "n_layer": 3, "n_head": 4, "n_positions": 32, "vocab_size": 51_000}

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in ARCHITECTURES if kind != "gpt2"),
    *((kind, {"tie_word_embeddings": True}) for kind in ("llama", "gpt_neox", "qwen3_moe", "phi3", "olmo2")),
    *((kind, {"tie_word_embeddings": False}) for kind in ("gemma", "gemma2", "gemma3_text")),
    *((kind, {"attention_bias": True}) for kind in ARCHITECTURES if kind not in ("gpt2", "gpt_neox")),
    *((kind, {"head_dim": 32}) for kind in ("llama", "mistral", "qwen3", "qwen3_moe", "gemma2", "gemma3_text")),
    ("llama", {"mlp_bias": True}),
    ("llama", {"num_key_value_heads": None}),
    ("gpt_neox", {"attention_bias": False, "use_parallel_residual": False}),
    ("mixtral", {"num_local_experts": 3}),
    ("mixtral", {"num_experts": 3}),
    ("qwen3_moe", {"num_experts": 4, "mlp_only_layers": [0, 3]}),
    ("qwen3_moe", {"num_local_experts": 4, "decoder_sparse_step": 2}),
    ("qwen3_moe", {"num_hidden_layers": 30, "num_experts": 4, "decoder_sparse_step": 2}),
    ("gpt2", {}),
    ("gpt2", GPT2),  # both spellings of each size
    ("gpt2", {"n_inner": 100, "tie_word_embeddings": False}),
]


def configuration(published: dict[str, Any]) -> Any:
    """The configuration class of transformers, filled the way it fills itself from a config.json."""
    part = published["text_config"] if published["model_type"] in MULTIMODAL else published
    kind = MULTIMODAL.get(published["model_type"], published["model_type"])
    made = transformers.CONFIG_MAPPING[kind]
    return made.from_dict({key: value for key, value in part.items() if key not in ("model_type", "torch_dtype")})


def torch_count(published: dict[str, Any]) -> int:
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(configuration(published))
    return sum(weight.numel() for weight in built.parameters())


def test_the_published_table_names_presets() -> None:
    assert set(PUBLISHED) <= set(NAMES)
    assert len(PUBLISHED) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_has_the_parameters_of_its_class(name: str) -> None:
    published = json.loads((paths.data() / "models" / f"{name}.json").read_text(encoding="utf-8"))
    assert parameters(model(name)).value == torch_count(published)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_preset_has_the_parameters_its_publisher_states(name: str) -> None:
    assert parameters(model(name)).value == PUBLISHED[name]


@pytest.mark.parametrize(("kind", "changed"), VARIANTS, ids=lambda value: str(value))
def test_every_key_that_is_read_means_what_it_means_in_transformers(kind: str, changed: dict[str, Any]) -> None:
    config = {**SMALL, "model_type": kind, **changed}
    assert parameters(read_config(config)).value == torch_count(config)


@pytest.mark.parametrize("kind", sorted(ARCHITECTURES))
def test_what_is_left_out_has_the_default_of_transformers(kind: str) -> None:
    theirs = transformers.CONFIG_MAPPING[kind]
    fields = ARCHITECTURES[kind].config.model_fields
    ours = {key: made.default for key, made in fields.items() if not made.is_required() and hasattr(theirs, key)}
    odd = {"mlp_only_layers"}  # None there, [] here: the same
    assert {k: v for k, v in ours.items() if k not in odd} == {k: getattr(theirs, k) for k in ours if k not in odd}
    assert len(ours) >= 5
