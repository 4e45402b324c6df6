"""Memory truth without a GPU: a training step of real model code on torch's fake tensors, in a process of its own."""
