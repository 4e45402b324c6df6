"""How many parameters: weights by shape, layers, shards."""

from planner.quantity import ceil, formula, maximum, minimum, where


@formula("channel", source="vaswani2017")
def head_width(heads, head_dim):
    """Channels of all heads together; not the hidden size in Qwen 3, Gemma and others."""
    return heads * head_dim


@formula("channel", source="vaswani2017")
def fused_width(query_width, kv_width):
    """Channels of one fused query, key and value projection."""
    return query_width + 2 * kv_width


@formula("channel", source="deepseek2024-v2")
def latent_width(rank, rope_dim):
    """Channels of the key and value latent with the part of the key that carries the position."""
    return rank + rope_dim


@formula("channel/head", source="deepseek2024-v2")
def latent_head(head_dim, rope_dim, value_dim):
    """What rises from the latent for each head: the part of the key without a position, and the value."""
    return head_dim - rope_dim + value_dim


@formula("param", source="vaswani2017")
def weight_params(rows, cols, copies):
    """Parameters of `copies` equal matrices; a vector is a matrix of one row."""
    return rows * cols * copies


@formula("param", source="vaswani2017")
def layers_params(layers, params):
    """Parameters of equal layers."""
    return layers * params


@formula("param", source="shoeybi2019")
def local_params(params, tp):
    """Parameters of a weight on one tensor-parallel rank, for a weight that tensor parallelism splits."""
    return params / tp


@formula("channel", source="shoeybi2019")
def local_channels(channels, tp):
    """Channels of a split dimension on one tensor-parallel rank."""
    return channels / tp


@formula("channel", source="megatron-vocab-padding")
def padded_vocab(vocab, multiple, tp):
    """Vocabulary rows as stored: padded to a multiple of `multiple` x tp (multiple = 1/tp leaves it as it is)."""
    return ceil(vocab / maximum(multiple * tp, 1)) * maximum(multiple * tp, 1)


@formula("1", source="yeung2024-vocabulary")
def vocab_ways(tp, stages):
    """Ranks that share the vocabulary."""
    return tp * stages


@formula("param", source="hu2021-lora")
def adapter_params(rank, rows, cols, copies):
    """LoRA parameters of `copies` adapted weights: one r x in and one out x r matrix each."""
    return rank * (rows + cols) * copies


@formula("param", source="megatron-source")
def expert_params(params, ep, etp):
    """Parameters of the experts on one rank: `ep` ranks share the experts, `etp` ranks each expert."""
    return params / (ep * etp)


@formula("layer", source="narayanan2021")
def stage_edge(layers, pp, stage):
    """Layers before a pipeline stage (counted from 0), equal stages."""
    return layers / pp * stage


@formula("layer", source="narayanan2021")
def stage_layers(layers, before, start, end):
    """Layers of a group on a stage that holds those from `start` to `end`; `before` lie ahead of the group."""
    return maximum(minimum(before + layers, end) - maximum(before, start), 0)


@formula("param", source="narayanan2021")
def on_stage(params, present):
    """Parameters that only some pipeline stages hold (1 where this stage does)."""
    return params * present


@formula("param", source="megatron-source")
def tied_copy(params, pp, tied):
    """Tied weights under pipeline parallelism: the last stage keeps a copy of the embedding as its head."""
    return where(tied, where(pp > 1, params, 0 * params), 0 * params)


@formula("param", source="definition")
def embedding_or_head(embedding, head, tied):
    """The weights whose gradient the head's backward makes: the head, or the embedding it is tied to."""
    return where(tied, embedding, head)


@formula("B", source="narayanan2021")
def on_stage_bytes(size, present):
    """Bytes that only some pipeline stages hold (1 where this stage does)."""
    return size * present


@formula("param", source="shazeer2018-adafactor")
def rows_and_cols(rows, cols, copies):
    """Numbers that Adafactor keeps of a weight: one for each row and column (counted as parameters)."""
    return (rows + cols) * copies


@formula("param", source="definition")
def left_in_layers(params_total, known, unknown_layers):
    """What a stated total leaves beside the parts that are known, for each of the layers that are not."""
    return maximum(params_total - known, 0 * known) / unknown_layers
