"""Registers MPE2's environments for EPyMARL, whose own list has those of PettingZoo, where they no longer are.

Gymnasium imports it by the environment's name, `mpe2_for_epymarl:simple-spread-v3`, within EPyMARL's process.
"""

import importlib
import sys

import gymnasium

NAMES = ("simple_spread_v3", "simple_speaker_listener_v4", "simple_tag_v3")
CYCLES = 26  # EPyMARL drops the rewards of an environment's last step: its own limit of 25 steps ends episodes

for name in NAMES:
    # The wrapper imports pettingzoo.mpe2.NAME.
    sys.modules[f"pettingzoo.mpe2.{name}"] = importlib.import_module(f"mpe2.{name}")
    gymnasium.register(
        name.replace("_", "-"),
        entry_point="envs.pz_wrapper:PettingZooWrapper",
        kwargs={"lib_name": "mpe2", "env_name": name, "max_cycles": CYCLES},
    )
