"""The founding article's rules of thumb, computed exactly as it computes them, and what sets them beside a model."""

from planner.quantity import formula, sqrt


@formula("B/param", source="founding-article")
def thumb_param_bytes(weight_width, gradient_width, moment_width, moments):
    """Bytes of training state for each parameter. Leaves out master weights, casts, buffers and activations."""
    return weight_width + gradient_width + moment_width * moments


@formula("B", source="founding-article")
def thumb_state(params, param_width):
    """Weights, gradients or one moment of all parameters, whole: 4N in fp32."""
    return params * param_width


@formula("B", source="founding-article")
def thumb_memory(sold_memory, sold_gpus):
    """Memory of all GPUs by the size they are sold as. Leaves out what the driver keeps and what torch cannot reach."""
    return sold_memory * sold_gpus


@formula("param", source="founding-article")
def thumb_largest(all_memory, bytes_per_param):
    """Parameters whose states fill the memory. Assumes perfect sharding; leaves out everything but the states."""
    return all_memory / bytes_per_param


@formula("B/param", source="founding-article")
def thumb_master(bytes_per_param, master_share):
    """What the article adds for an fp32 master copy: a share of the other states."""
    return bytes_per_param * master_share


@formula("B", source="founding-article")
def thumb_layer(batch, seq_len, hidden, act_width):
    """Activations of one layer, taken as one tensor of the hidden state. A layer keeps 17 to 30 times as much."""
    return batch * seq_len * hidden * act_width


@formula("B", source="founding-article")
def thumb_layers(layer_bytes, layers):
    """Activations of all layers."""
    return layer_bytes * layers


@formula("B", source="founding-article")
def thumb_attention(batch, seq_len, layers, score_width):
    """Attention matrices of all layers. Leaves out the heads; a `score_width` of 1 takes elements for bytes."""
    return batch * seq_len * seq_len * layers * score_width


@formula("1", source="founding-article")
def thumb_checkpoint_share(kept_bytes, all_bytes):
    """The share of the activations that checkpointing leaves."""
    return kept_bytes / all_bytes


@formula("sequence", source="founding-article")
def thumb_max_batch(card_memory, fixed_bytes, per_sample):
    """The largest micro-batch by the linear law; the whole number below it is meant."""
    return (card_memory - fixed_bytes) / per_sample


@formula("B/sequence", source="founding-article")
def two_point_slope(at_first, at_second, first_batch, second_batch):
    """Memory of one more sequence, from two micro-batches. Holds while one phase sets the peak at both."""
    return (at_second - at_first) / (second_batch - first_batch)


@formula("B", source="founding-article")
def two_point_fixed(at_first, first_batch, per_sample):
    """Memory that does not grow with the micro-batch: the line through two points, read at 0."""
    return at_first - first_batch * per_sample


@formula("B/param", source="definition")
def per_parameter(size, params):
    """Bytes for each parameter."""
    return size / params


@formula("B", source="definition")
def scaled_to(size, params, wanted_params):
    """States of a model of another size, parameter for parameter."""
    return size * wanted_params / params


@formula("1", source="definition")
def proportion(a, b):
    """How many times the second is in the first."""
    return a / b


@formula("1", source="definition")
def share_saved(a, b):
    """The share that goes away when the second becomes the first."""
    return 1 - a / b


@formula("B", source="definition")
def difference(a, b):
    """What is left of the first without the second."""
    return a - b


@formula("layer", source="chen2016-checkpointing")
def best_interval(layers, input, saved):
    """The checkpoint interval of least memory: one input for each region, and one region's saved tensors."""
    return sqrt(layers * input / saved)
