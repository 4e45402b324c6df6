"""From allocated to reserved to what the device holds, the band around it, and the verdict."""

from planner.quantity import ceil, formula, maximum, minimum, sqrt, where


@formula("B", source="allocator-replay")
def cached_one_stream(allocated, slack):
    """Cached and split blocks of the allocator over the peak, with one compute stream."""
    return allocated * slack


@formula("B", source="allocator-replay")
def gather_pool(root_gathered, layer_gathered, ranks):
    """Pool of FSDP2's all-gathers: a layer's buffer beside the next one's or the root group's, and this rank's part."""
    return layer_gathered + maximum(root_gathered, layer_gathered) * (1 + 1 / ranks)


@formula("B", source="allocator-replay")
def uneven_blocks(size, times):
    """Free blocks that routed tensors leave, as so many copies of all routed tokens."""
    return size * times


@formula("B", source="allocator-replay")
def cached_fsdp(allocated, compute_pool, slack, gather_pool, reduce_pool, unavoidable):
    """Cached blocks under FSDP2: every stream's pool at its own peak, less what is allocated at the common one."""
    return maximum(compute_pool * (1 + slack) + gather_pool + reduce_pool - allocated, allocated * unavoidable)


@formula("B", source="allocator-replay")
def step_pool(size, part_cached):
    """Blocks that the optimizer's temporaries add to the cache: a weight's is larger than any of an activation."""
    return size * part_cached


@formula("B", source="allocator-replay")
def squeezed(cached, rest, allocated, outside, workspaces, usable):
    """Cached blocks that really stay: near the limit torch frees what it can before it fails."""
    room = usable - outside - workspaces - allocated
    return minimum(cached, maximum(room, rest))


@formula("B", source="nccl-memory")
def communicator_buffers(first, more, communicators):
    """NCCL's buffers: the first communicator and each further one; none on a single GPU."""
    return where(communicators > 0, first + more * (communicators - 1), 0 * first)


@formula("1", source="definition")
def communicators(world, dp_replicate, dp_shard, tp, cp, pp, ep):
    """Process groups that communicate: one where the world is more than one GPU, and one for each further axis."""
    data = where(dp_replicate > 1, 1, 0) + where(dp_shard > 1, 1, 0)
    axes = data + where(tp > 1, 1, 0) + where(cp > 1, 1, 0) + where(pp > 1, 1, 0) + where(ep > 1, 1, 0)
    return where(world > 1, maximum(axes, 1), 0)


@formula("1", source="definition")
def world_size(dp_replicate, dp_shard, tp, cp, pp):
    """GPUs a plan takes."""
    return dp_replicate * dp_shard * tp * cp * pp


@formula("B", source="definition")
def upper_end(device, allocated, error, cached, cached_high, context, context_high, nccl, nccl_high):
    """Upper end of the 90 % band of device memory on a card without end; the four causes are taken as independent."""
    return device + sqrt(
        (allocated * error) ** 2
        + (cached_high - cached) ** 2
        + (context_high - context) ** 2
        + (nccl_high - nccl) ** 2
    )


@formula("B", source="definition")
def lower_end(device, allocated, error, cached, cached_low, context, context_low, nccl, nccl_low):
    """Lower end of the 90 % band of device memory; the four causes are taken as independent."""
    return device - sqrt(
        (allocated * error) ** 2
        + (cached - cached_low) ** 2
        + (context - context_low) ** 2
        + (nccl - nccl_low) ** 2
    )


@formula("B", source="allocator-replay")
def unavoidable_rest(allocated, unavoidable):
    """Cached blocks that remain when torch has given back all it can."""
    return allocated * unavoidable


@formula("B", source="cli-contract")
def on_this_card(unbounded, needed, usable):
    """An upper end on a card with an end: cached blocks shrink before anything fails, what is needed does not."""
    return minimum(unbounded, maximum(usable, needed))


@formula("B", source="cli-contract")
def least_needed(allocated, error, rest, workspaces, context, nccl):
    """The least this run can do with: lower ends, and an allocator squeezed to its unavoidable minimum."""
    return allocated * (1 + error) + rest + workspaces + context + nccl


@formula("B", source="definition")
def headroom(usable, device):
    """What is left on the card."""
    return usable - device


@formula("1", source="cli-contract")
def verdict_code(high, least, usable):
    """2 fits: the band's upper end is within the card. 0 oom: even the least needed is not. 1 edge: between."""
    return where(high <= usable, 2, where(least > usable, 0, 1))


@formula("1", source="definition")
def verdict_of_known(verdict, unknown):
    """A verdict over the parts that have formulas: with others beside them it is never that the run fits."""
    return where(unknown, minimum(verdict, 1), verdict)


@formula("1", source="definition")
def share(part, whole):
    """A part of a whole."""
    return part / whole


@formula("B", source="deepspeed-source")
def host_memory(state, pinned, process, ranks):
    """Host memory of one node: offloaded state with its pinned rounding, and each rank's process."""
    return (state * pinned + process) * ranks


@formula("1", source="definition")
def models_loaded(beside):
    """Models that are loaded one after the other and stay: the one that trains and those beside it."""
    return 1 + beside


@formula("B", source="definition")
def copies_on_host(size, copies, models):
    """Whole copies of the weights on one node: of each model, one for each rank that reads."""
    return size * copies * models


@formula("B", source="definition")
def smaller(a, b):
    """The smaller of two sizes."""
    return minimum(a, b)


@formula("1", source="definition")
def derived(by_kind, tp, cp, pp, ep):
    """1 where a run's formulas were not traced: by its kind, or since tensors, tokens, stages or experts are split."""
    return where(by_kind, 1, where(tp * cp * pp * ep > 1, 1, 0))


@formula("1", source="definition")
def formula_error(derived, error_derived, error_traced):
    """One end of the formulas' own spread, for derived or traced kinds of run."""
    return where(derived, error_derived, error_traced)


@formula("1", source="definition")
def wider(a, b):
    """The one of two ends of a spread that is further from nothing."""
    return where(b * b > a * a, b, a)


@formula("B", source="definition")
def allocated_end(allocated, error):
    """One end of the 90 % band of allocated memory: how far the formulas themselves may be off."""
    return allocated * (1 + error)


@formula("B", source="definition")
def reserved_end(allocated, workspaces, cached, error, spread, workspaces_end, side):
    """One end of the 90 % band of reserved memory (`side` 1 above, -1 below); its causes are taken as independent."""
    off = sqrt((allocated * error) ** 2 + spread**2 + (workspaces_end - workspaces) ** 2)
    return allocated + workspaces + cached + side * off


@formula("B", source="definition")
def apart(a, b):
    """How far apart two sizes are."""
    return a - b


@formula("sequence", source="definition")
def per_replica(step_sequences, dp_replicate, dp_shard):
    """Sequences of a global batch that one data-parallel rank sees."""
    return step_sequences / (dp_replicate * dp_shard)


@formula("B", source="fsdp2-traces")
def padded_gather(size, experts, ranks):
    """Stacked experts as FSDP2 gathers them: cut by whole experts, every rank padded to as many as the first has."""
    return size * ceil(experts / ranks) * ranks / experts


@formula("1", source="megatron-source")
def sequence_parts(cp, balanced, ways):
    """Equal parts that context parallelism cuts a sequence into; two a rank where it balances the causal mask."""
    return cp * where(balanced, 2, 1) * ways


@formula("token/sequence", source="definition")
def next_multiple(seq_len, sequence_step):
    """The sequence length, rounded up to a whole number of parts."""
    return ceil(seq_len / sequence_step) * sequence_step


@formula("B", source="definition")
def cached_end(cached, own_end, allocated, unseen):
    """One end of the band of cached blocks: its own, and what the settings do not tell, taken as independent."""
    return cached + where(unseen < 0, -1, 1) * sqrt((own_end - cached) ** 2 + (allocated * unseen) ** 2)
