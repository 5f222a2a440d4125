"""Gymnasium spaces: structure, supported kinds, serialization, and the transform between policy and env actions."""

from lightning_rl.spaces.actions import ActionTransform, squash, unsquash
from lightning_rl.spaces.groups import GroupMembers
from lightning_rl.spaces.serialization import space_difference, space_from_json, space_to_json
from lightning_rl.spaces.structure import as_arrays, leaf_spaces, leaf_values, naming_another_form, pack_leaves
from lightning_rl.spaces.support import check_supported, choices_of, is_bounded_box, is_continuous

__all__ = [
    "ActionTransform",
    "GroupMembers",
    "as_arrays",
    "check_supported",
    "choices_of",
    "is_bounded_box",
    "is_continuous",
    "leaf_spaces",
    "leaf_values",
    "naming_another_form",
    "pack_leaves",
    "space_difference",
    "space_from_json",
    "space_to_json",
    "squash",
    "unsquash",
]
