"""The hardware and the model of a record, in the words of a case file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import PlannerError
from planner.evidence.reading import MOST_RANKS, Reader
from planner.evidence.settings import framework
from planner.spec import catalog, outside
from planner.spec.stack import known

#: a card's stated size may be this far from the catalogue's nominal one (marketing sizes, parts of a family)
SAME_SIZE = (0.7, 1.4)
#: keys of an architecture that only models with a state-space or linear-attention mixer have
STATE_SPACE = (
    "ssm", "mamba", "state_size", "ssm_state_size", "hybrid_pattern", "hybrid_override_pattern", "linear_attention",
)  # fmt: skip
#: kinds of model that the planner has no layers for, by the tag that a record carries them under
UNKNOWN_KINDS = {"encoder-decoder": "encoder-decoder"}
#: a tag that says the same without naming the layers
HYBRID = "hybrid-ssm"


def cluster(read: Reader) -> dict[str, Any]:
    """GPU, how many, and in how many nodes."""
    record = read.record
    gpus = read.count(record, "n_gpus", most=MOST_RANKS) or _product(read)
    each = read.count(record, "gpus_per_node", most=MOST_RANKS)
    found = {"gpu": _gpu(read), "gpus": gpus, "host_gib": read.number(record, "host_gib", 1e-3, 1e6)}
    if gpus and each and each <= gpus:
        if gpus % each:
            read.contradiction("gpus_per_node", "uneven-nodes", gpus=gpus, each=each)
        found["nodes"] = gpus // each
    elif gpus and gpus > catalog.GPUS_PER_NODE:
        found["nodes"] = gpus // max(d for d in range(1, catalog.GPUS_PER_NODE + 1) if gpus % d == 0)
    return found


def _product(read: Reader) -> int | None:
    """GPUs in all where a record states only how they are split."""
    parallel = read.table("parallel")
    ways = [read.count(parallel, name, "parallel.", most=MOST_RANKS) for name in ("dp", "tp", "pp", "cp")]
    if all(w is None for w in ways):
        read.note("n_gpus", 1, "one-gpu")
        return 1
    total = 1
    for way in ways:
        total *= way or 1
    read.note("n_gpus", total, "product")
    return total


def _gpu(read: Reader) -> str | None:
    """The card by its name, or by its size where the name is not known."""
    name = read.word(read.record, "gpu")
    size = read.number(read.record, "gpu_mem_gb", 0.5, 4096)
    if name:
        try:
            part = catalog.accelerator(name)
        except PlannerError:
            part = None
        if part is not None:
            nominal = float(part.memory_nominal.value) / 1e9
            if size and not SAME_SIZE[0] <= size / nominal <= SAME_SIZE[1]:
                read.contradiction("gpu_mem_gb", "other-size", gpu=part.id, size=f"{size:g}", nominal=f"{nominal:g}")
            return part.id
        if size:
            read.note("gpu", f"{size:g} GB", "unknown-gpu", stated=name[:40])
    if size is None:
        return None
    if not name:
        read.note("gpu", f"{size:g} GB", "size-alone")
    return f"gpu-{size:g}gb"


def model(read: Reader) -> Any:
    """The model: a decoder by its parts, or a size where a record has no architecture."""
    arch = read.table("arch")
    tags = read.words(read.record, "tags") or []
    for tag, why in UNKNOWN_KINDS.items():
        if tag in tags:
            read.contradiction("arch", why)
    stated = arch.get("model_type")
    unknown = outside.word_of(stated if isinstance(stated, str) else None, arch)
    if HYBRID in tags or unknown or any(arch.get(key) for key in STATE_SPACE):
        return _hybrid(read, arch)
    if "vlm" in tags:
        read.note("arch", "language model", "vlm", near=True)
    if any(value is not None for value in arch.values()):
        return _decoder(read, arch)
    size = read.number(read.record, "params_total", 1e6, 1e15)
    if size is None:
        read.missing("arch")
        return None
    read.note("arch", f"{size:.4g}", "by-size", near=True)
    return str(int(size))


def _hybrid(read: Reader, arch: Mapping[str, Any]) -> dict[str, Any]:
    """A model with mixers that have no formulas: its width and depth, its vocabulary, and its parameters if stated.

    Without a pattern nobody knows which layers have attention or a feed-forward block: then all of them stay open.
    """
    names = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim",
             "intermediate_size", "num_experts", "moe_intermediate_size")  # fmt: skip
    found = {name: read.count(arch, name, "arch.") for name in names}
    found["num_experts_per_tok"] = read.count(arch, "experts_per_token", "arch.")
    found["params_total"] = read.number(read.record, "params_total", 1e6, 1e15)
    if found["params_total"] and not (found["hidden_size"] and found["num_hidden_layers"]):
        read.note("arch", f"{found['params_total']:.4g}", "hybrid-size")
        found |= {"hidden_size": 1, "num_hidden_layers": 1000, "vocab_size": 1, "by_size": True}
    for name in names[:3]:
        if found[name] is None:
            read.missing(f"arch.{name}")
    pattern = arch.get("hybrid_pattern") or arch.get("hybrid_override_pattern")
    stated = {"hybrid_override_pattern": pattern} if isinstance(pattern, str) else {}
    keys = outside.keys_of(None, {k: v for k, v in {**found, **stated}.items() if v is not None}, "state-space")
    tied = bool(read.flag(arch, "tie_word_embeddings", "arch."))
    return {**keys, "model_type": outside.KIND, "bare": True, "tie_word_embeddings": tied}


def _decoder(read: Reader, arch: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"model_type": "decoder"}
    for name, most in (("hidden_size", 10**6), ("num_hidden_layers", 10**4), ("num_attention_heads", 10**5),
                       ("vocab_size", 10**8)):  # fmt: skip
        found[name] = read.count(arch, name, "arch.", most=most)
        if found[name] is None:
            read.missing(f"arch.{name}")
    for name in ("num_key_value_heads", "head_dim", "moe_intermediate_size"):
        found[name] = read.count(arch, name, "arch.", most=10**7)
    _experts(read, arch, found)
    latent = read.table("mla", arch, "arch.")
    for name in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        found[name] = read.count(latent, name, "arch.mla.", most=10**5)
    dense = read.count(arch, "intermediate_size", "arch.", most=10**7)
    found["intermediate_size"] = dense or found["moe_intermediate_size"]
    if found["intermediate_size"] is None:
        read.missing("arch.intermediate_size")
    found["tie_word_embeddings"] = bool(read.flag(arch, "tie_word_embeddings", "arch."))
    gated = read.flag(arch, "gated_mlp", "arch.")
    found["gated_mlp"] = True if gated is None else gated
    _kinds(read, arch, found)
    found["mtp_num_layers"] = read.count(arch, "mtp_num_layers", "arch.", least=0, most=1000)
    _left_out(read, arch, found)
    return {k: v for k, v in found.items() if v is not None}


def _experts(read: Reader, arch: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Routed and shared experts, and the dense layers before them."""
    experts = read.count(arch, "num_experts", "arch.", least=0, most=10**5)
    if not experts or experts < 2:
        found["moe_intermediate_size"] = None
        return
    found["num_experts"] = experts
    found["experts_per_token"] = read.count(arch, "experts_per_token", "arch.", most=10**5)
    if found["experts_per_token"] is None:
        read.note("arch.experts_per_token", 2, "usual")
        found["experts_per_token"] = 2
    shared = read.count(arch, "shared_experts", "arch.", least=0, most=10**4) or 0
    width = read.count(arch, "shared_intermediate_size", "arch.", least=0, most=10**7)
    each = found["moe_intermediate_size"] or read.count(arch, "intermediate_size", "arch.", most=10**7) or 0
    found["shared_intermediate_size"] = width if width and shared else shared * each
    found["first_k_dense"] = read.count(arch, "first_k_dense", "arch.", least=0, most=10**4)


#: words of a record for norm and activation, and ours
NORM = {"rmsnorm": "rmsnorm", "rms": "rmsnorm", "layernorm": "layernorm", "ln": "layernorm"}
ACTIVATIONS = ("swiglu", "silu", "gelu", "geglu", "relu", "squared-relu")


def _kinds(read: Reader, arch: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Norm, position, bias and activation by name."""
    norm = (read.word(arch, "norm", "arch.") or "rmsnorm").lower()
    found["norm"] = NORM.get(norm) or _taken(read, "arch.norm", norm, "rmsnorm")
    position = (read.word(arch, "position", "arch.") or "rope").lower()
    known = position in ("rope", "learned", "alibi", "none")
    found["position"] = position if known else _taken(read, "arch.position", position, "rope")
    if found["position"] == "learned":
        table = read.count(arch, "max_position", "arch.", most=10**9)
        found["max_position_embeddings"] = table or read.count(read.record, "seq_len", least=0, most=10**8) or 2048
    activation = read.word(arch, "activation", "arch.")
    if activation and activation.lower() not in ACTIVATIONS:
        activation = _taken(read, "arch.activation", activation, "swiglu" if found["gated_mlp"] else "gelu")
    found["activation"] = activation.lower() if activation else None
    bias = arch.get("bias")
    words = {True: "all", "all": "all", "qkv": "qkv"}
    found["bias"] = words.get(bias, "none") if isinstance(bias, bool | str) else "none"
    found["qk_norm"] = bool(arch.get("qk_norm"))


def _taken(read: Reader, field: str, stated: str, near: str) -> str:
    """A kind that is not known, taken as another."""
    read.note(field, near, "taken-as", near=True, stated=stated[:40])
    return near


def _predicts_further(read: Reader) -> bool:
    """Whether the framework is of Megatron's kind, whose layers for further tokens have a formula."""
    stack = known(framework(read) or "")
    return stack is not None and stack.tensor_parallel == "megatron"


def _left_out(read: Reader, arch: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Parts of an architecture that have no formula yet."""
    if arch.get("mla") and not read.table("mla", arch, "arch.").get("kv_lora_rank"):
        read.note("arch.mla", "gqa", "mla", near=True)
    if found["mtp_num_layers"] and not _predicts_further(read):
        read.note("arch.mtp_num_layers", 0, "mtp", near=True)
        found["mtp_num_layers"] = None
    if arch.get("position") == "alibi":
        read.note("arch.position", "none", "alibi")
