"""Policy losses, one per file, and the other terms of the objective, as pure functions on flat token tensors.

Axes: ``M`` the trained tokens of a micro-batch, grouped by sequence.

Every loss is ``sum(weights_M * something_M)``. The weights include one over the normaliser of the global batch, so the
sum over micro-batches is the mean over the global batch, regardless of how it was split. Log-probabilities are in nats.
Metrics are weighted means without gradient, except those whose names end in ``/max``. Log-ratios are clamped to ±20.

Configuration checks import the files of the policy losses, so these files import torch only when called.
"""
