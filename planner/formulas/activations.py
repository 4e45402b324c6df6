"""What autograd keeps between the forward and the backward, in bytes a token and in bytes a micro-batch."""

from planner.quantity import ceil, formula, maximum, minimum, where


@formula("B/token", source="saved-tensor-traces")
def kept(channels, width):
    """One saved tensor of `channels` numbers a token, `width` bytes each. Rounding to 512 B is left out (< 0.01 %)."""
    return channels * width


@formula("1", source="deepspeed-source")
def tile_share(tokens, tile):
    """Share of the tokens that a tiled feed-forward takes at once (tiles of as many tokens as the model is wide)."""
    return 1 / ceil(tokens / tile)


@formula("B/token", source="deepspeed-source")
def of_a_tile(per_token, portion):
    """A tensor that exists for the tokens of one tile alone, spread over all tokens."""
    return per_token * portion


@formula("B/token", source="saved-tensor-traces")
def reader_copies(channels, width, autocast, readers):
    """The input of `readers` linears: one tensor, or under autocast one low-precision cast for each reader."""
    return channels * width * (1 + autocast * (readers - 1))


@formula("B/token", source="saved-tensor-traces")
def scores_kept(heads, seq_len, width):
    """One attention matrix: every token against every token of its sequence, in every head."""
    return heads * seq_len * width


@formula("channel", source="saved-tensor-traces")
def expanded_channels(kv_channels, query_channels, heads, kv_heads, seq_len, window):
    """Key or value as kept: grouped heads are copied for every query head where a sliding window needs a mask.

    A single head is only viewed, not copied.
    """
    grouped = where(kv_heads > 1, where(heads > kv_heads, query_channels, kv_channels), kv_channels)
    return where(seq_len >= window, grouped, kv_channels)


@formula("B/token", source="saved-tensor-traces")
def mask_kept(seq_len, window, width):
    """A sliding window's mask as SDPA keeps it in every layer: all tokens against all; none within the window."""
    return where(seq_len >= window, seq_len * width, 0 * seq_len * width)


@formula("B/token", source="saved-tensor-traces")
def within_window(size, seq_len, window):
    """What is kept only while the sequence is shorter than the sliding window."""
    return where(seq_len >= window, 0 * size, size)


@formula("B/token", source="saved-tensor-traces")
def beyond_window(size, seq_len, window):
    """What is kept only where the sequence fills the sliding window or exceeds it."""
    return where(seq_len >= window, size, 0 * size)


@formula("channel", source="dao2023-flash2")
def expanded_gradients(query_channels, heads, kv_heads):
    """Gradients of key and value for every query head, which flash attention's backward makes before it sums them."""
    return where(heads > kv_heads, 2 * query_channels, 0 * query_channels)


@formula("B/token", source="dao2023-flash2")
def logsumexp_kept(heads, width, seq_len, block):
    """The softmax statistics a fused attention keeps; the memory-efficient backend pads the sequence to `block`."""
    return heads * width * ceil(seq_len / block) * block / seq_len


@formula("B/element", source="saved-tensor-traces")
def upcast_width(width, autocast, upcast):
    """Width of a tensor that composed code keeps in fp32 where autocast runs the operation in fp32."""
    return where(autocast, upcast, width)


@formula("B/element", source="saved-tensor-traces")
def copy_width(width, upcast):
    """Width of the low-precision copy beside an fp32 softmax; none where everything is fp32."""
    return where(width < upcast, width, 0 * width)


@formula("B/element", source="saved-tensor-traces")
def pick_by_mode(act_width, autocast, low, mixed, full):
    """One of three traced widths: 16-bit throughout, autocast, or fp32 throughout."""
    return where(autocast, mixed, where(act_width < 4, low, full))


@formula("B/token", source="hf-moe-traces")
def router_kept(experts, experts_per_token, expert_width, index_width, fixed):
    """Router softmax and routing indices of a dropless mixture of experts."""
    return experts * expert_width + experts_per_token * index_width + fixed


@formula("channel", source="mixtral2024")
def routed_channels(channels, experts_per_token):
    """Channels of all routed copies of a token."""
    return channels * experts_per_token


@formula("B/token", source="saved-tensor-traces")
def input_kept_apart(channels, stream_width, upcast_width):
    """A layer's own input, where the saved fp32 upcast is another tensor (16-bit stream); 0 where it is the same."""
    return where(stream_width < upcast_width, channels * stream_width, 0 * channels)


@formula("B/token", source="chen2016-checkpointing")
def checkpoint_kept(channels, stream_width):
    """What full checkpointing keeps of a layer: its input, in the dtype of the residual stream."""
    return channels * stream_width


@formula("1", source="shoeybi2022-sequence-parallel")
def sequence_ways(tp, sequence_parallel):
    """Ranks over which norms, dropout and the residual are split: tp with sequence parallelism, else 1."""
    return where(sequence_parallel, tp, 1)


@formula("B/token", source="tp-traces")
def where_split(size, ways):
    """What exists only where ranks share the tokens of a layer's norms."""
    return where(ways > 1, size, 0 * size)


@formula("token", source="definition")
def local_tokens(micro_batch, seq_len, cp):
    """Tokens of one micro-batch on one GPU."""
    return micro_batch * seq_len / cp


@formula("B", source="definition")
def microbatch_bytes(tokens, per_token):
    """Bytes of one micro-batch."""
    return tokens * per_token


@formula("B", source="narayanan2021")
def waiting_kept(bytes_each, in_flight):
    """Saved tensors of the micro-batches that wait in the pipeline besides the one at work."""
    return bytes_each * (in_flight - 1)


@formula("microbatch", source="narayanan2021")
def in_flight_1f1b(pp, stage, microbatches):
    """Micro-batches whose activations a stage holds at once under 1F1B (stage counts from 0)."""
    return minimum(microbatches, pp - stage)


@formula("microbatch", source="yeung2024-vocabulary")
def in_flight_vocab(pp, stage, microbatches, barriers, lengthened):
    """Micro-batches a stage holds under 1F1B with the vocabulary split over all stages (stage counts from 0).

    Each communication barrier of the loss puts the backward one micro-batch off; interlaced, the way there is longer.
    """
    return minimum(microbatches, (pp - stage) * lengthened + barriers)


@formula("microbatch", source="narayanan2021")
def in_flight_interleaved(pp, stage, microbatches, virtual_stages, layers):
    """Micro-batches in flight, interleaved 1F1B: 2(p - i - 1) + (v - 1)g + 1 chunks, each 1/v of a stage's layers.

    A chunk passes g micro-batches before the next one starts: p, or all where p does not divide them. Where a chunk
    lacks a layer (the embedding or the loss counts as one), it is the first of the first stage, which has more than g
    micro-batches in flight, and else the last, which has one.
    """
    group = where(ceil(microbatches / pp) * pp > microbatches, microbatches, pp)
    held = 2 * (pp - stage - 1) + (virtual_stages - 1) * group + 1
    chunk = ceil(layers / virtual_stages)
    lacking = chunk * virtual_stages - layers
    lost = lacking * where(stage < 1, held - (virtual_stages - 1) * group, minimum(held, 1))
    return minimum(microbatches, (held * chunk - lost) / maximum(layers, 1))


@formula("1", source="torchtitan-moe")
def crowding(ep, fullest):
    """Tokens that a rank's experts receive over their mean: uneven only where experts are spread over ranks."""
    return where(ep > 1, fullest, 1)


@formula("channel", source="torchtitan-moe")
def crowded(channels, crowding):
    """Channels of routed tokens on the fullest rank."""
    return channels * crowding


@formula("channel", source="megatron-source")
def routed_share(channels, tp, etp):
    """Channels of routed tokens on one rank: ranks that do not share each expert share the tokens instead."""
    return channels * etp / tp


@formula("B/token", source="liu2023-ring-attention")
def ring_buffers(kv_channels, width, tensors, cp):
    """Keys and values of a neighbour, in use and on their way, where the sequence is split over a ring."""
    return where(cp > 1, tensors * kv_channels * width, 0 * kv_channels * width)


@formula("B", source="hf-rope")
def rope_tables(seq_len, head_dim, width, tables):
    """Cosine and sine tables, shared by all layers."""
    return seq_len * head_dim * width * tables


@formula("B", source="saved-tensor-traces")
def shared_mask(seq_len, width, window, kinds, recomputed):
    """Attention masks of one sequence, which all layers share: an input of every layer that is recomputed."""
    size = seq_len * seq_len * width * kinds * where(recomputed, 1, 0)
    return where(seq_len >= window, size, 0 * size)


@formula("B", source="definition")
def token_ids(tokens, width):
    """Input ids."""
    return tokens * width


@formula("B", source="chen2016-checkpointing")
def kept_after_forward(saved, checkpointed, layers, region, every, most, recomputed):
    """All layers of one micro-batch: saved tensors, or of recomputed regions what recomputation starts from.

    A region has `region` layers; each `every`-th one is recomputed, `most` of them at most.
    """
    regions = minimum(most, -ceil(-ceil(layers / region) / every))
    rest = maximum(layers - regions * region, 0)
    return where(recomputed, checkpointed * regions + saved * rest, saved * layers)


@formula("B", source="chen2016-checkpointing")
def kept_in_backward(saved, checkpointed, layers, done, region, every, most, recomputed):
    """What the layers besides the one at work still keep, `done` layers into the backward.

    Of recomputed regions: what those not yet reached keep, and the other layers of the region at work.
    """
    left = maximum(layers - done - region, 0)
    regions = minimum(most, -ceil(-ceil(left / region) / every))
    rest = maximum(left - regions * region, 0)
    inside = maximum(minimum(region, layers) - 1, 0)
    whole = saved * maximum(layers - done - 1, 0)
    return where(recomputed, checkpointed * regions + saved * (rest + inside), whole)


@formula("B", source="saved-tensor-traces")
def own_before_backward(size, layer, recomputed):
    """What a layer kept of the forward when its backward begins: `size`, or what its checkpoint kept."""
    return where(recomputed, layer, size)


@formula("B", source="saved-tensor-traces")
def without_first_norm(size, unsaved, layers, done, recomputed):
    """Behind a frozen embedding nothing before the first layer's linears needs a gradient: its norm keeps nothing."""
    return where(recomputed, size, where(done < layers - 1, size - unsaved, size))


@formula("B", source="bitsandbytes-source")
def former_inputs(size, layers, recomputed):
    """What packed linears hold of the pass before while the next runs forward; nothing where layers are recomputed."""
    return where(recomputed, 0 * size, size * layers)


@formula("B", source="litgpt-source")
def without_first_layers(size, saved, first, recomputed):
    """Where nothing before some layer trains, the layers before it keep nothing for a backward."""
    return where(recomputed, size, maximum(size - first * saved, 0 * size))


@formula("B", source="fsdp1-reentrant")
def held_gradients(size, layers):
    """Gradients of the layers' inputs that FSDP1's hooks on frozen weights hold to the end of a reentrant backward."""
    return size * maximum(layers - 1, 0)


@formula("B", source="megatron-source")
def held_losses(size, losses):
    """What the losses of all further tokens keep."""
    return size * losses


@formula("B", source="torch-save-on-cpu")
def kept_on_gpu(size, layers, recomputed, offloaded):
    """What layers keep on the GPU: all, or of what goes to host memory the input of one layer that is recomputed.

    As torch's hooks copy, at once: the layer at work counts there, whole (the trace brings back a tensor at a time:
    the lower end). Streams may hold more, torchtune's up to 5 tensors in the forward; that is not counted.
    """
    one = size * minimum(layers, 1) / maximum(layers, 1)
    return where(offloaded, where(recomputed, one, 0 * size), size)


@formula("B", source="torch-autocast")
def whole_copies(size, layers):
    """Autocast's weight copies of all layers: they pile up until the forward leaves the autocast context."""
    return size * layers


@formula("B", source="torch-autocast")
def copies_at_loss(size, layers, recomputed):
    """Weight copies still saved when the loss runs backward: none where layers are recomputed."""
    return where(recomputed, 0 * size, size * layers)


@formula("layer", source="definition")
def layers_done(layers, place):
    """Layers already done at a place in the backward: 0, 1, all but two, all but one."""
    last = maximum(layers - 1, 0)
    near = where(place < 1, 0 * last, minimum(last, 0 * last + 1))
    return where(place < 2, near, maximum(last - (3 - place), 0))
