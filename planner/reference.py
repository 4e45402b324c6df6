"""The reference behind the numbers as data: formulas in mathematical notation, their words, coefficients and sources.

Symbols are the glossary's. Where two names of one formula share a symbol, or a name has none, words stand instead.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from planner import explain, formulas, i18n, terms
from planner.calibration.coefficients import Coefficient, priors
from planner.errors import nearest
from planner.quantity import FORMULAS, Formula

#: chapters in the order they are read; one that is not named comes after these
ORDER = ("parameters", "states", "activations", "temporaries", "overheads", "capacity", "thumb")

_NAME = re.compile(r"\\mathrm\{((?:[^{}\\]|\\_)+)\}")
#: 0 x size: how a formula writes nothing for a number and for an array alike
_NOTHING = re.compile(r"(?<![\w.])0 \\cdot +\\mathrm\{[^{}]+\}(?: \\cdot +\\mathrm\{[^{}]+\})*")


@functools.cache
def chapters() -> dict[str, tuple[Formula, ...]]:
    """Every formula by chapter: the module it is written in, in its order there."""
    for module in pkgutil.walk_packages(formulas.__path__, f"{formulas.__name__}."):
        importlib.import_module(module.name)
    found: dict[str, list[Formula]] = {name: [] for name in ORDER}
    for one in explain.all_formulas():
        found.setdefault(chapter(one), []).append(one)
    return {name: tuple(sorted(held, key=_line)) for name, held in found.items() if held}


def chapter(one: Formula) -> str:
    """The chapter of a formula."""
    return str(one.function.__module__.rpartition(".")[2])


def _line(one: Formula) -> int:
    return int(one.function.__code__.co_firstlineno)


def formula(name: str) -> Formula | None:
    """The formula of that name, or None."""
    chapters()
    return FORMULAS.get(name)


def close_to(name: str) -> str | None:
    """The name of a formula that is spelled most like it, or None."""
    chapters()
    return nearest(name[:60], FORMULAS)


# Mathematical notation


def symbols(one: Formula) -> dict[str, str]:
    """LaTeX of the formula's name and of each of its inputs."""
    names = dict.fromkeys((one.name, *one.parameters))
    found = {name: terms.term(name).symbol if name in terms.terms() else "" for name in names}
    uses = Counter(found.values())
    return {name: symbol if symbol and uses[symbol] == 1 else _words(name) for name, symbol in found.items()}


def _words(name: str) -> str:
    return rf"\text{{{name.replace('_', ' ')}}}"


def latex(one: Formula) -> str:
    """The whole equation."""
    shown = symbols(one)
    right = _NOTHING.sub("0", explain.latex(one))
    right = _NAME.sub(lambda found: shown[found[1].replace(r"\_", "_")], right)
    return f"{shown[one.name]} = {right}"


# Words


def label(name: str) -> str:
    """What a name is called in the language in use."""
    return terms.label(name, i18n.current())


def about(one: Formula) -> str:
    """What a formula says, assumes and leaves out, in one paragraph."""
    own = ABOUT_ZH.get(one.name) if i18n.current() == "zh" else None
    return own or " ".join((one.__doc__ or "").split())


def inputs(one: Formula) -> list[dict[str, str]]:
    """The inputs of a formula: name, LaTeX, label and unit."""
    shown = symbols(one)
    return [{"name": p, "latex": shown[p], "label": label(p), "unit": _unit(p, one)} for p in one.parameters]


def _unit(name: str, one: Formula) -> str:
    return terms.term(name).unit_in(one.name) if name in terms.terms() else ""


def glossary() -> list[dict[str, str]]:
    """Every word of the formulas and answers in both languages, by name; `note` in the language in use."""
    rows = sorted(terms.terms().values(), key=lambda row: row.name)
    return [
        {"name": row.name, "symbol": row.symbol, "unit": row.unit, "en": row.en, "zh": row.zh, "note": _note(row)}
        for row in rows
    ]


def _note(row: terms.Term) -> str:
    return (row.help_zh if i18n.current() == "zh" else "") or row.help_en


def coefficients() -> list[Coefficient]:
    """Every shipped coefficient, by name."""
    return [priors()[name] for name in sorted(priors())]


# Sources


@functools.cache
def works() -> dict[str, dict[str, Any]]:
    """Every work and page that is cited, by key."""
    return tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))


def cited() -> dict[str, int]:
    """How many formulas cite a source, by its key."""
    return dict(Counter(one.source for held in chapters().values() for one in held))


# Search


def search(words: str) -> list[Formula]:
    """Formulas that have every word in their name, words, inputs or source, in either language."""
    wanted = words.lower().split()
    held = [one for part in chapters().values() for one in part]
    return [one for one in held if all(word in _searched(one.name) for word in wanted)]


@functools.cache
def _searched(name: str) -> str:
    one = FORMULAS[name]
    names = (name, *one.parameters)
    labels = (terms.label(n, language) for n in names for language in ("en", "zh"))
    work = works().get(one.source, {})
    source = (one.source, work.get("title", ""), work.get("authors", ""))
    return " ".join((*names, *labels, *source, one.__doc__ or "", ABOUT_ZH.get(name, ""))).lower()


#: what each formula's own description says, in Chinese; the English one stands beside its code
ABOUT_ZH = {
    "head_width": "全部注意力头的通道数；在 Qwen 3、Gemma 等模型中不等于隐藏维度。",
    "fused_width": "融合的 Q、K、V 投影的通道数。",
    "latent_width": "键值潜变量的通道数，含键中携带位置的部分。",
    "latent_head": "每个头由潜变量升维得到的通道数：键中不带位置的部分，以及值。",
    "weight_params": "`copies` 个相同矩阵的参数量；向量视为只有一行的矩阵。",
    "left_in_layers": "给出的总参数量减去已知部分后，每个未知层所剩的参数量。",
    "layers_params": "同构层的参数量。",
    "local_params": "张量并行切分的权重在单个张量并行进程上的参数量。",
    "local_channels": "被切分的维度在单个张量并行进程上的通道数。",
    "padded_vocab": "实际存储的词表行数：填充到 `multiple` × tp 的整数倍（multiple = 1/tp 时不填充）。",
    "adapter_params": "`copies` 个加了适配器的权重的 LoRA 参数量：各有一个 r × in 矩阵和一个 out × r 矩阵。",
    "expert_params": "单个进程上的专家参数量：`ep` 个进程分摊专家，`etp` 个进程分摊每个专家。",
    "stage_edge": "某个流水线阶段（从 0 起编号）之前的层数，各阶段相等。",
    "stage_layers": "一组层落在从 `start` 到 `end` 的阶段上的层数；该组之前有 `before` 层。",
    "on_stage": "只由部分流水线阶段持有的参数（本阶段持有时为 1）。",
    "tied_copy": "流水线并行下的共享权重：最后一个阶段另存一份词嵌入作为输出层。",
    "embedding_or_head": "输出层反向产生其梯度的权重：输出层，或与之共享权重的词嵌入。",
    "on_stage_bytes": "只由部分流水线阶段持有的字节数（本阶段持有时为 1）。",
    "rows_and_cols": "Adafactor 为一个权重保留的数：每行、每列各一个（按参数计数）。",
    "state_bytes": "权重、梯度或优化器状态；除非 ZeRO 阶段对其分片，否则 `ways` 为 1。",
    "ways_at": "ZeRO 阶段涵盖某种状态时分摊它的进程数，否则为 1；上下文并行的进程也在其中。",
    "ways_between": "微批之间分摊梯度的进程数；若只在最后一个微批时归约，则为 1。",
    "expert_ways_at": "分摊专家状态的进程数：dp_shard、cp 与 tp 中专家并行未占用的部分。",
    "mixed_state_bytes": "权重、梯度或优化器状态，其中专家由另一组进程分摊。",
    "optimizer_width": "每个可训练参数的优化器状态字节数。",
    "factored_states": "不带动量的 Adafactor：矩阵的每行、每列各保留一个数。",
    "ddp_buckets": "DDP 的梯度桶，相当于梯度的第二份副本（gradient_as_bucket_view=False）。",
    "on_gpu": "可能被卸载的部分中留在 GPU 上的量。",
    "on_host": "可能被卸载的部分中放到主机内存的量。",
    "kept": "一个保存的张量：每个 token `channels` 个数，每个数 `width` 字节。不计按 512 B 取整（小于 0.01%）。",
    "tile_share": "分片前馈一次处理的 token 占比（每个分片的 token 数等于模型宽度）。",
    "of_a_tile": "只为一个分片的 token 存在的张量，摊到全部 token 上。",
    "reader_copies": "`readers` 个线性层的输入：通常只存一个张量；在 autocast 下，每个线性层各存一份低精度副本。",
    "scores_kept": "一个注意力矩阵：每个头中，序列的每个 token 对每个 token。",
    "expanded_channels": (
        "所保留的键或值：滑动窗口需要掩码时，分组的键值头会复制到每个查询头。只有一个键值头时仅为视图，不复制。"
    ),
    "mask_kept": "SDPA 在每层保留的滑动窗口掩码：全部 token 对全部 token；序列未超出窗口时没有。",
    "within_window": "仅在序列短于滑动窗口时才保留的量。",
    "beyond_window": "仅在序列达到或超过滑动窗口时才保留的量。",
    "expanded_gradients": "flash attention 的反向在求和之前，为每个查询头产生的键和值的梯度。",
    "logsumexp_kept": "融合注意力保留的 softmax 统计量；memory-efficient 后端把序列填充到 `block` 的整数倍。",
    "upcast_width": "在 autocast 以 fp32 执行的算子处，非融合代码以 fp32 保留的张量宽度。",
    "copy_width": "fp32 softmax 之外低精度副本的宽度；全部为 fp32 时没有。",
    "pick_by_mode": "三种实测宽度之一：全程 16 位、autocast 或全程 fp32。",
    "router_kept": "无丢弃（dropless）混合专家的路由 softmax 和路由索引。",
    "routed_channels": "一个 token 的全部路由副本的通道数。",
    "input_kept_apart": "层自身的输入，仅当保存的 fp32 副本是另一个张量时（残差流为 16 位）才计；二者相同时为 0。",
    "checkpoint_kept": "完全检查点为每层保留的量：以残差流的数据类型保存的层输入。",
    "sequence_ways": "切分归一化、dropout 和残差的进程数：启用序列并行时为 tp，否则为 1。",
    "local_tokens": "单卡上一个微批次的 token 数。",
    "microbatch_bytes": "一个微批次的字节数。",
    "waiting_kept": "除正在计算的微批次外，流水线中等待的微批次所保存的张量。",
    "without_first_layers": "某层之前没有可训练参数时，之前各层不为反向保留任何张量。",
    "former_inputs": "量化打包的线性层在下一次前向期间仍保留的上一次前向的输入；各层重算时没有。",
    "held_gradients": "FSDP1 包裹冻结权重、且用可重入方式重算时，各层输入的梯度一直留到反向结束（与输入本身一起）。",
    "in_flight_1f1b": "1F1B 调度下，一个阶段同时保留激活的微批次数（阶段从 0 起编号）。",
    "in_flight_vocab": (
        "词表切分到各阶段的 1F1B 下一个阶段的在途微批次数（阶段从 0 起编号）：损失的每个通信屏障使反向推迟一个微批次；"
        "交错词表时路径更长。"
    ),
    "in_flight_interleaved": (
        "交错 1F1B 的在途微批次数：2(p - i - 1) + (v - 1)g + 1 块，每块为一个阶段各层的 1/v。"
        "一块连续处理 g 个微批次后才轮到下一块：g 为 p；p 不能整除微批次数时为全部。"
        "某块少一层时（词嵌入或损失按一层计），第一阶段是其第一块，在途微批次多于 g；其余阶段是最后一块，在途一个。"
    ),
    "routed_share": "单个进程上路由 token 的通道数：不分摊每个专家的进程改为分摊 token。",
    "ring_buffers": "序列沿环切分时，邻居的键和值：正在用的与传输中的。",
    "kept_on_gpu": "各层留在 GPU 上的量：全部，或卸载到主机时只有一个重算层的输入。",
    "rope_tables": "余弦表和正弦表，各层共用。",
    "shared_mask": "单条序列的注意力掩码，各层共用：是每个重计算层的输入。",
    "token_ids": "输入的 token 编号。",
    "kept_after_forward": (
        "一个微批次的全部层：保存的张量，或重计算区间中重算的起点。每个区间 `region` 层；每 `every` 个区间重算一个，"
        "最多 `most` 个。"
    ),
    "kept_in_backward": (
        "反向已完成 `done` 层时，除正在计算的层外仍保留的量。重计算区间：尚未到达的区间所保留的，以及正在计算的区间中"
        "的其余各层。"
    ),
    "whole_copies": "autocast 为全部层制作的权重副本：在前向退出 autocast 上下文之前不断累积。",
    "copies_at_loss": "损失反向时仍保存的权重副本；各层重计算时没有。",
    "layers_done": "反向某一位置上已完成的层数：0、1、总层数减 2、总层数减 1。",
    "gathered": "FSDP 组在聚合期间的完整权重，以计算数据类型存放。",
    "prefetched": "下一层的聚合权重；反向到最后一层时已没有可预取的。",
    "reduce_input": "上一层正进入 reduce-scatter 的梯度；第一层之前没有。",
    "own_before_backward": "某层反向开始时它在前向中保存的量。",
    "sequence_parts": "上下文并行把序列切成的份数：每个进程两份，使因果注意力的工作量均衡。",
    "padded_gather": "FSDP2 沿专家维切分并补齐到进程数后，聚合一层专家所需的字节。",
    "next_multiple": "不小于给定数的最近倍数。",
    "chunks_left": "第二个分块之后各分块的 logits 梯度；此时正累加第二块得到的输出层梯度。",
    "summed_gradient": "分块得到的梯度：已有之和、下一块以及两者的新和同时存在。",
    "stays_gathered": "前向后不重新分片、因而保持聚合的权重。",
    "at_the_last": "只在反向进行到最后一层时存在的字节。",
    "before_the_first": "只在反向进行到第一层时存在的字节。",
    "one_layer_less": "除一层以外各层的字节。",
    "reduce_output": "reduce-scatter 的结果中属于本进程的一份，与其输入同时存在。",
    "forward_loss_width": "前向结束时每个 logit 的字节数：logits、较窄时的上转副本，以及 log softmax。",
    "chunked_loss_width": "分块前向结束时每个 logit 的字节数：logits 与每一块的 fp32 log softmax。",
    "chunk_upcast_width": "前向中正在处理的分块每个 logit 的字节数：其 fp32 副本；单条序列的 fp32 logits 不需要副本。",
    "chunk_casts": "冻结的输出层分块运行时，autocast 不缓存其副本，每一块各自转换并保留一份。",
    "held_logits": "输出层运行时每个 logit 的字节数：当前的 logits，以及训练循环仍引用的上一次的 logits。",
    "split_loss_width": "torch 将词表切分到各进程时每个 logit 的字节数：其损失多保留一个 fp32 张量。",
    "partial_embedding": "torch 按行切分的嵌入层，在更新前每个进程上都有整张表的梯度。",
    "without_first_norm": "冻结的嵌入层之后，第一层线性层之前没有需要梯度的张量：其归一化不保存任何内容。",
    "still_gathered": "FSDP 前向后不重新分片时仍处于聚合状态的层数（不含正在计算的层）。",
    "gradients_so_far": "已完成各层的梯度；如有之前微批次留下的梯度，则为全部层的梯度。",
    "if_carried": "本次反向之前已存在的梯度：来自之前的微批次，或在常驻缓冲区中。",
    "new_gradient": "正在计算的层的权重梯度；若已有常驻缓冲区，则只有正在累加进去的那一个。",
    "gradients_carried": "反向开始前 GPU 上是否已有梯度；卸载的梯度一产生就离开 GPU。",
    "logits_bytes": "对完整 logits 计算损失：每个 token、每个词表项 `logit_width` 字节。",
    "chunk_logits": "每次只计算一块 token 的损失。",
    "liger_rows": "Liger 融合线性交叉熵每块的 token 数：token 数除以 ceil(V/h) 后向上取 2 的幂。",
    "weight_copies": "autocast 在前向或该层反向结束之前保留的低精度权重副本。",
    "all_weight_copies": "正在计算的层之前各层的副本；各层重计算时，副本每次只重做一份。",
    "embedding_sort": "词嵌入反向的索引缓冲区。",
    "tied_gradients": "共享权重：输出层的梯度、词嵌入的梯度及二者之和同时存在。",
    "tied_embedding_gradients": "归约之前词嵌入的梯度；与输出层共享权重时，还有输出层的梯度及二者之和。",
    "foreach_copy": "foreach 版 AdamW：额外一份张量列表，与本地参数等大。",
    "forloop_copies": "逐参数循环：最大那个参数的临时量。",
    "buckets": "通信桶；不会大于全部梯度。",
    "live_parameters": "ZeRO-3：同时存在的聚合权重，包括正在计算的层、已预取的或即将再次使用的。",
    "fp32_gradient_slice": "优化器更新逐片进行，并为当前片保留一份 fp32 梯度。",
    "gemm_workspaces": "矩阵乘的工作区：调用 cuBLAS 的各线程、算子库及分组矩阵乘各流各一份。",
    "cast_weights": "16 位权重之外、所有微批次共用的低精度权重：原样一份，另有转置一份供反向使用。",
    "kept_loss_width": "损失为反向保留的每个 logit 字节数（logits 已释放）：softmax，最多 fp32。",
    "held_losses": "全部后续 token 的损失所保留的量。",
    "step_pool": "优化器更新的临时量留下的缓存块：一个权重的块大于任何激活的块。",
    "vocab_ways": "共同切分词表的进程数。",
    "dummy_wgrads": "每种不同的权重形状缓存一个占位的权重梯度。",
    "unless_unsharded": "只有前向后重新分片的层才会预取。",
    "where_layers": "某类层的字节数，只存在于有这类层的阶段。",
    "where_sharded": "只有当 ZeRO 阶段对权重分片时才存在的字节数。",
    "unless_carried": "独立的一份梯度，除非已有缓冲区接收它。",
    "adds_into_buffer": "新梯度累加到完整缓冲区时为 1；分片的梯度一产生就归约。",
    "larger_if_carried": "目前已产生的分片梯度；如有之前微批次留下的梯度，则为全部。",
    "unpacked_weight": "量化打包的基座中的一个权重，为矩阵乘而解包；若随后还要转换数据类型，则同时存在两份。",
    "cached_one_stream": "只有一个计算流时，分配器在峰值之上的缓存块和碎块。",
    "gather_pool": "FSDP2 all-gather 流的内存池：一层的缓冲区与下一层（或根组）的缓冲区同时存在，再加本进程的一份。",
    "cached_fsdp": "FSDP2 下的缓存块：每个流的内存池都处于各自的峰值，再减去共同峰值时刻已分配的量。",
    "uneven_blocks": "路由张量留下的空闲块，以全部路由 token 的份数计。",
    "crowding": "一个进程的专家收到的 token 数与平均值之比：只有专家分布在多个进程上时才不均。",
    "crowded": "负载最重的进程上路由 token 的通道数。",
    "where_split": "只有当各进程分摊层归一化的 token 时才存在的量。",
    "squeezed": "真正留下的缓存块：接近上限时，torch 会先释放所有可释放的块，然后才会失败。",
    "communicator_buffers": "NCCL 缓冲区：第一个通信组和其后的每个通信组；单卡时没有。",
    "communicators": "进行通信的进程组数：GPU 多于一张时一个，每增加一个并行维度再加一个。",
    "wider": "误差区间两端中离零更远的一端。",
    "allocated_end": "已分配显存 90% 区间的一端：公式本身可能的偏差。",
    "reserved_end": "已保留显存 90% 区间的一端（`side` 为 1 取上端，-1 取下端）；各误差来源视为相互独立。",
    "apart": "两个大小之差。",
    "per_replica": "全局批中每个数据并行副本处理的序列数。",
    "world_size": "方案所占用的 GPU 数。",
    "upper_end": "假定单卡显存无上限时，设备显存 90% 区间的上限；四种误差来源视为相互独立。",
    "lower_end": "设备显存 90% 区间的下限；四种误差来源视为相互独立。",
    "unavoidable_rest": "torch 归还全部可归还的块之后仍剩下的缓存块。",
    "on_this_card": "显存有上限的卡上的区间上限：在失败之前缓存块先收缩，真正需要的量不会收缩。",
    "least_needed": "这次训练的最低需求：各项取下限，分配器压缩到不可避免的最小值。",
    "headroom": "单卡上剩余的显存。",
    "verdict_code": "2 为放得下：区间上限在单卡容量之内。0 为放不下：连最低需求也超出。1 为临界：介于二者之间。",
    "verdict_of_known": "只针对有公式的部分的判定：若另有未知部分，绝不判为放得下。",
    "share": "部分占整体的比例。",
    "models_beside": "同样大小的其他模型另占的部分：参考模型、奖励模型和价值模型。",
    "models_loaded": "先后加载并保留的模型：受训的模型及其之外的模型。",
    "copies_on_host": "单个节点上的完整权重副本：每个模型、每个读取的进程各一份。",
    "host_memory": "单个节点的主机内存：卸载的状态连同其锁页取整，以及每个进程自身。",
    "smaller": "两个大小中较小的一个。",
    "derived": "训练的公式未经实测时为 1：由于其类型，或由于切分了张量或阶段。",
    "cached_end": "缓存块区间的一端：自身的端点与设置未说明的部分（视为相互独立）。",
    "formula_error": "公式自身误差区间的一端，区分推导得出和经过实测两类。",
    "usable_memory": (
        "只知道标称容量的设备上 torch 可见的显存，每 GB 对应 `per_gb`。每 GB 0.988 GiB 在 Hopper 上误差 0.3%，在 "
        "B200 上 2%；对因 ECC 损失显存的型号则偏大。"
    ),
    "usable_memory_within": (
        "已知打印总量的设备上 torch 可见的显存：按标称容量推算，但不超过总量减去驱动保留的部分。与公开的显存不足"
        "报错相比，误差约 0.3%。"
    ),
    "thumb_param_bytes": "每个参数的训练状态字节数。不含主权重、类型转换副本、缓冲区和激活。",
    "thumb_state": "全部参数的权重、梯度或一个动量，不分片：fp32 下为 4N。",
    "thumb_memory": "按标称容量计的全部 GPU 显存。不扣除驱动保留以及 torch 够不到的部分。",
    "thumb_largest": "状态恰好占满显存时的参数量。假定完美分片；除状态外一概不计。",
    "thumb_master": "文章为 fp32 主权重副本增加的量：其余状态的一个比例。",
    "thumb_layer": "单层激活，当作一个隐藏状态张量。实际每层保留的是它的 17 到 30 倍。",
    "thumb_layers": "全部层的激活。",
    "thumb_attention": "全部层的注意力矩阵。漏掉了注意力头数；`score_width` 为 1 时把元素个数当成字节数。",
    "thumb_checkpoint_share": "使用检查点后剩余激活的比例。",
    "thumb_max_batch": "由线性规律得到的最大微批次；取不大于它的整数。",
    "two_point_slope": "由两个微批次得到的每增加一条序列的显存。仅当两点的峰值出现在同一阶段时成立。",
    "two_point_fixed": "不随微批次增长的显存：过两点的直线在 0 处的值。",
    "per_parameter": "每个参数的字节数。",
    "scaled_to": "按参数量等比换算的另一规模模型的状态。",
    "proportion": "第一个量是第二个量的多少倍。",
    "share_saved": "由第二个量变为第一个量时节省的比例。",
    "difference": "第一个量减去第二个量后剩下的部分。",
    "best_interval": "显存最省的检查点间隔：每个区间一个输入，加上一个区间内保存的张量。",
}  # fmt: skip
