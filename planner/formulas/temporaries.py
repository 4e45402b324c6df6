"""What lives only for a moment: gathered weights, gradients in flight, the loss, buckets, optimizer temporaries."""

from planner.quantity import ceil, formula, log2, maximum, minimum, where


@formula("B", source="fsdp2-traces")
def gathered(params, param_width):
    """Whole weights of an FSDP group in the compute dtype, while it is gathered."""
    return params * param_width


@formula("B", source="fsdp2-traces")
def prefetched(size, layers, done):
    """The next layer's gathered weights; nothing is left to prefetch at the last layer of the backward."""
    return where(done < layers - 1, size, 0 * size)


@formula("B", source="fsdp2-traces")
def reduce_input(size, done):
    """The previous layer's gradients on their way into the reduce-scatter; none before the first."""
    return where(done > 0, size, 0 * size)


@formula("B", source="fsdp2-traces")
def stays_gathered(size, reshard):
    """Weights that stay gathered after the forward because nothing is resharded."""
    return where(reshard, 0 * size, size)


@formula("B", source="fsdp2-traces")
def at_the_last(size, layers, done):
    """Bytes that exist while the last layer of the backward is at work."""
    return where(done < layers - 1, 0 * size, size)


@formula("B", source="fsdp2-traces")
def before_the_first(size, done):
    """Bytes that exist while the first layer of the backward is at work."""
    return where(done > 0, 0 * size, size)


@formula("B", source="definition")
def one_layer_less(size, layer):
    """Bytes of all layers but one."""
    return size - layer


@formula("B", source="fsdp2-traces")
def reduce_output(size, ranks):
    """This rank's share of what a reduce-scatter gives, beside its input."""
    return size / ranks


@formula("B", source="fsdp2-traces")
def still_gathered(size, layers, done, reshard):
    """Layers that stay gathered after the forward when FSDP does not reshard (the one at work apart)."""
    return where(reshard, 0 * size, size * maximum(layers - done - 1, 0))


@formula("B", source="definition")
def gradients_so_far(size_each, layers, done, carried):
    """Gradients of the layers already done; of all layers when earlier micro-batches left theirs."""
    return size_each * where(carried, layers, done)


@formula("B", source="definition")
def if_carried(size, carried):
    """Gradients that exist before this backward: from earlier micro-batches, or in a persistent buffer."""
    return where(carried, size, 0 * size)


@formula("B", source="torch-autograd")
def new_gradient(params, param_width, carried, largest_params, fused_wgrad):
    """Weight gradients of the layer at work; beside a carried buffer only the one that is being added to it."""
    fresh = where(fused_wgrad, 0 * largest_params, minimum(largest_params, params))
    return where(carried, fresh, params) * param_width


@formula("1", source="definition")
def gradients_carried(accumulation, persistent, offloaded):
    """Whether gradients exist on the GPU before a backward begins; offloaded ones leave as they are made."""
    return where(offloaded, 0, where(accumulation > 1, 1, persistent))


@formula("B", source="saved-tensor-traces")
def logits_bytes(tokens, vocab, logit_width, tp):
    """The loss over whole logits: `logit_width` bytes for each token and vocabulary entry."""
    return tokens * vocab * logit_width / tp


@formula("B/element", source="saved-tensor-traces")
def forward_loss_width(act_width, upcast_width):
    """Bytes a logit at the end of the forward: logits, their upcast where they are narrower, and the log softmax."""
    return act_width + upcast_width + where(act_width < upcast_width, upcast_width, 0 * upcast_width)


@formula("B/element", source="megatron-source")
def kept_loss_width(logit_width, act_width, upcast_width):
    """Bytes a logit that a loss keeps for its backward when its logits are gone: the softmax, at most in fp32."""
    return minimum(logit_width - act_width, upcast_width)


@formula("B/element", source="torchtitan-chunked-loss")
def chunked_loss_width(act_width, upcast_width):
    """Bytes a logit at the end of a forward by chunks: the logits and the fp32 log softmax of every chunk."""
    return act_width + upcast_width


@formula("B/element", source="torch-autograd")
def chunk_upcast_width(act_width, upcast_width, micro_batch):
    """Bytes a logit of the chunk at work in the forward: its fp32 copy; fp32 logits of one sequence need none.

    A chunk of several sequences is copied in any dtype, as its rows do not lie together.
    """
    alone = where(act_width < upcast_width, upcast_width, 0 * upcast_width)
    return where(micro_batch > 1, upcast_width, alone)


@formula("B/element", source="litgpt-source")
def held_logits(act_width, held_width, held):
    """Bytes a logit while the head runs: its logits, and those of the pass before where the loop still holds them."""
    return act_width + where(held, held_width, 0 * held_width)


@formula("B/element", source="tp-traces")
def split_loss_width(logit_width, extra, tp):
    """Bytes a logit where torch splits the vocabulary over ranks: its loss keeps one fp32 tensor more."""
    return where(tp > 1, logit_width + extra, logit_width)


@formula("B", source="torchtitan-chunked-loss")
def chunk_logits(tokens, vocab, logit_width, chunks, tp):
    """The loss of one chunk of tokens at a time."""
    return ceil(tokens / chunks) * vocab * logit_width / tp


@formula("B", source="torchtitan-chunked-loss")
def chunks_left(tokens, vocab, chunks, grad_width, tp):
    """Gradients of the logits of all chunks after the second, whose piece of the head's gradient is being added."""
    return tokens * vocab * grad_width * maximum(chunks - 2, 0) / chunks / tp


@formula("B", source="torch-autograd")
def summed_gradient(size, chunks, alive):
    """A gradient made in pieces: `alive` at once, which are the sum so far, the next piece and their sum."""
    return size * minimum(chunks, alive)


@formula("B", source="torch-autocast")
def chunk_casts(size, chunks):
    """A frozen head that runs by chunks: autocast keeps no copy of it, so that each chunk casts and holds its own."""
    return size * chunks


@formula("token", source="liger-flce")
def liger_rows(tokens, vocab, hidden):
    """Tokens of one chunk of Liger's fused linear cross entropy: the next power of two of tokens over ceil(V/h)."""
    return minimum(2 ** ceil(log2(maximum(ceil(tokens / ceil(vocab / hidden)), 1))), tokens)


@formula("B", source="torch-autocast")
def weight_copies(params, act_width, autocast):
    """Low-precision copies of weights that autocast keeps until the forward or the layer's backward is over."""
    return params * act_width * autocast


@formula("B", source="torch-autocast")
def all_weight_copies(size, layers, done, recomputed):
    """Copies of the layers before the one at work; where layers are recomputed, copies are remade one at a time."""
    return where(recomputed, 0 * size, size * maximum(layers - done - 1, 0))


@formula("B", source="torch-embedding-backward")
def embedding_sort(tokens, width):
    """Index buffers of the embedding's backward."""
    return tokens * width


@formula("B", source="saved-tensor-traces")
def tied_gradients(params, param_width, tied, carried):
    """Tied: the head's gradient, the embedding's and their sum at once; beside a carried gradient the new one too."""
    return (where(tied, 2, 0) + where(carried, 1, 0)) * params * param_width


@formula("B", source="fsdp2-traces")
def tied_embedding_gradients(params, param_width, tied):
    """The embedding's gradient before it is reduced; tied to the head, also the head's gradient and their sum."""
    return (1 + where(tied, 2, 0)) * params * param_width


@formula("B", source="torch-optimizer")
def foreach_copy(params, param_width, ways):
    """foreach AdamW: one extra tensor list, as large as the local parameters."""
    return params * param_width / ways


@formula("B", source="torch-optimizer")
def forloop_copies(largest_params, param_width, copies, ways):
    """A loop over parameters: temporaries of the largest one."""
    return copies * largest_params * param_width / ways


@formula("B", source="deepspeed-source")
def buckets(elements, width, copies, params):
    """Communication buckets; never larger than all gradients."""
    return minimum(elements, params) * width * copies


@formula("B", source="deepspeed-source")
def live_parameters(layer_params, live_elements, prefetch_elements, param_width, params):
    """ZeRO-3: gathered weights alive at once: the layer at work, what is prefetched or is about to be reused."""
    return minimum(maximum(layer_params + prefetch_elements, live_elements), params) * param_width


@formula("B", source="deepspeed-source")
def fp32_gradient_slice(params, ways, slice_elements, width):
    """The optimizer step works through slices and holds an fp32 copy of the slice's gradients."""
    return minimum(params / ways, slice_elements) * width


@formula("B", source="transformer-engine-source")
def dummy_wgrads(params, width):
    """One cached placeholder weight gradient for each distinct weight shape."""
    return params * width


@formula("B", source="transformer-engine-fp8")
def cast_weights(params, width, copies):
    """Cast weights kept beside the 16-bit ones through all micro-batches: as they are, and transposed."""
    return params * width * copies


@formula("B", source="cublas-workspace")
def gemm_workspaces(each, plain, grouped):
    """Workspaces of matrix products: of threads that call cuBLAS, of the library, and of grouped products' streams."""
    return each * (plain + grouped)


@formula("B", source="fsdp2-traces")
def unless_unsharded(size, reshard):
    """Prefetching happens only where layers were resharded after the forward."""
    return where(reshard, size, 0 * size)


@formula("B", source="definition")
def where_layers(size, layers):
    """Bytes of a kind of layer that exist only on a stage that has one."""
    return where(layers > 0, size, 0 * size)


@formula("B", source="rajbhandari2019")
def where_sharded(size, zero, stage):
    """Bytes that exist only where the ZeRO stage shards the weights."""
    return where(zero >= stage, size, 0 * size)


@formula("B", source="torch-autograd")
def unless_carried(size, carried):
    """A gradient of its own, unless a buffer that already exists takes it."""
    return where(carried, 0 * size, size)


@formula("1", source="torch-autograd")
def adds_into_buffer(carried, sharded):
    """1 where a new gradient is added into a whole buffer; sharded gradients are reduced as they are made."""
    return where(sharded > 1, 0, carried)


@formula("B", source="fsdp2-traces")
def larger_if_carried(size, all_gradients, carried):
    """Sharded gradients made so far, or all of them where earlier micro-batches left theirs."""
    return where(carried, all_gradients, size)


@formula("B", source="dettmers2023-qlora")
def unpacked_weight(params, param_width, copies):
    """One weight of a packed base, unpacked for its matrix product; twice where its dtype is then changed."""
    return params * param_width * copies
