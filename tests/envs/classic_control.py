"""Creators of the environments that most tests act in: one with discrete, one with continuous actions."""

from __future__ import annotations

from lightning_rl.envs import EnvCreator

CARTPOLE = EnvCreator("CartPole-v1")
PENDULUM = EnvCreator("Pendulum-v1")
