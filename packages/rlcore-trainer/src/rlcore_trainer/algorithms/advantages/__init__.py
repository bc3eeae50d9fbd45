"""Advantage estimators, one per file: how much better than expected a trajectory or token is.

Each file contains the estimator as a pure function of tensors, which `rlcore_trainer.algorithms.configured` makes
selectable. Configuration checks import these files, so they import torch only when called.

Tokens that the policy did not write are ignored: the discount across them is 1, and the result is the same as for the
row without them. A reward on such a token counts for the written token before it, or for the first written token if
there is none. Non-finite rewards and values raise `ValueError`.
"""
