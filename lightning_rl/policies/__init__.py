"""The algorithms, one file each, and their base classes."""

from __future__ import annotations

from lightning_rl.policies.a2c import A2C
from lightning_rl.policies.a3c import A3C
from lightning_rl.policies.apex import ApexDQN
from lightning_rl.policies.appo import APPO
from lightning_rl.policies.ars import ARS
from lightning_rl.policies.awac import AWAC
from lightning_rl.policies.bc import BC
from lightning_rl.policies.cql import CQL
from lightning_rl.policies.crossq import CrossQ
from lightning_rl.policies.ddpg import DDPG
from lightning_rl.policies.discrete_cql import DiscreteCQL
from lightning_rl.policies.dqn import DQN
from lightning_rl.policies.es import ES
from lightning_rl.policies.impala import IMPALA
from lightning_rl.policies.independent_q import IndependentQ
from lightning_rl.policies.iql import IQL
from lightning_rl.policies.maddpg import MADDPG
from lightning_rl.policies.marwil import MARWIL
from lightning_rl.policies.matches import Matches
from lightning_rl.policies.matd3 import MATD3
from lightning_rl.policies.pg import PG
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.policy_set import PolicySet
from lightning_rl.policies.ppo import PPO
from lightning_rl.policies.pqn import PQN
from lightning_rl.policies.pqn_vdn import PQNVDN
from lightning_rl.policies.qmix import QMIX
from lightning_rl.policies.r2d2 import R2D2
from lightning_rl.policies.rainbow import Rainbow
from lightning_rl.policies.random_policy import RandomPolicy
from lightning_rl.policies.rebrac import ReBRAC
from lightning_rl.policies.recurrent_sac import RecurrentSAC
from lightning_rl.policies.sac import SAC
from lightning_rl.policies.scratch_policy import ScratchPolicy
from lightning_rl.policies.scripted_policy import ScriptedPolicy
from lightning_rl.policies.simple_q import SimpleQ
from lightning_rl.policies.td3 import TD3
from lightning_rl.policies.td3_bc import TD3BC
from lightning_rl.policies.tqc import TQC
from lightning_rl.policies.vdn import VDN
from lightning_rl.policies.xqc import XQC

__all__ = [
    "A2C",
    "A3C",
    "APPO",
    "ARS",
    "AWAC",
    "BC",
    "CQL",
    "DDPG",
    "DQN",
    "ES",
    "IMPALA",
    "IQL",
    "MADDPG",
    "MARWIL",
    "MATD3",
    "PG",
    "PPO",
    "PQN",
    "PQNVDN",
    "QMIX",
    "R2D2",
    "SAC",
    "TD3",
    "TD3BC",
    "TQC",
    "VDN",
    "XQC",
    "ApexDQN",
    "CrossQ",
    "DiscreteCQL",
    "IndependentQ",
    "Matches",
    "Policy",
    "PolicySet",
    "Rainbow",
    "RandomPolicy",
    "ReBRAC",
    "RecurrentSAC",
    "ScratchPolicy",
    "ScriptedPolicy",
    "SimpleQ",
]
