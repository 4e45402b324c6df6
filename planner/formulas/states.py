"""Weights, gradients and optimizer states in bytes on one rank."""

from planner.quantity import formula, maximum, where


@formula("B", source="tp-traces")
def partial_embedding(params, param_width, tp):
    """torch's row-split embedding has a gradient of the whole table on every rank until the step reduces it."""
    return params * (tp - 1) * param_width


@formula("B", source="rajbhandari2019")
def state_bytes(params, param_width, ways):
    """Weights, gradients or optimizer states; `ways` is 1 unless the ZeRO stage shards them."""
    return params * param_width / ways


@formula("1", source="rajbhandari2019")
def ways_at(zero, stage, dp_shard, cp):
    """Ranks that share a state where the ZeRO stage reaches it, else 1; context-parallel ranks are among them."""
    return where(zero >= stage, dp_shard * cp, 1)


@formula("1", source="torch-fsdp1")
def ways_between(ways, accumulation, whole):
    """Ranks that share gradients between micro-batches: none where they are only reduced with the last one."""
    return where(whole, where(accumulation > 1, 1, ways), ways)


@formula("1", source="megatron-source")
def expert_ways_at(zero, stage, dp_shard, cp, tp, ep, etp):
    """Ranks that share a state of the experts: those of dp_shard, cp and tp that expert parallelism leaves."""
    return where(zero >= stage, maximum(dp_shard * cp * tp / (ep * etp), 1), 1)


@formula("B", source="megatron-source")
def mixed_state_bytes(params, experts, param_width, ways, expert_ways):
    """Weights, gradients or optimizer states of which the experts are shared by other ranks than the rest."""
    return ((params - experts) / ways + experts / expert_ways) * param_width


@formula("B/param", source="kingma2015-adam")
def optimizer_width(states, state_width):
    """Bytes of optimizer state for each trained parameter."""
    return states * state_width


@formula("B", source="shazeer2018-adafactor")
def factored_states(sums, width, ways):
    """Adafactor without momentum: one number for each row and each column of a matrix."""
    return sums * width / ways


@formula("B", source="torch-ddp")
def ddp_buckets(params, param_width, replicas):
    """DDP's gradient buckets, a second copy of the gradients (gradient_as_bucket_view=False)."""
    return where(replicas > 1, params * param_width, 0 * params * param_width)


@formula("B", source="definition")
def models_beside(size, models):
    """What other models of the same size hold beside the one that is counted: reference, reward and value models."""
    return size * models


@formula("B", source="definition")
def on_gpu(size, offloaded):
    """What stays on the GPU of something that may be offloaded."""
    return where(offloaded, 0 * size, size)


@formula("B", source="definition")
def on_host(size, offloaded):
    """What goes to host memory of something that may be offloaded."""
    return where(offloaded, size, 0 * size)
