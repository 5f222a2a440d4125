"""Advantage actor-critic, asynchronous."""

from __future__ import annotations

from lightning_rl.policies.a2c import A2C

__all__ = ["A3C"]


class A3C(A2C):
    """A2C whose workers compute gradients asynchronously. Mnih et al. 2016, arXiv:1602.01783.

    Its settings are those of `A2C`. The asynchronous part is `data=gradients`, which other on-policy algorithms can use
    as well.
    """

    data = "gradients"
