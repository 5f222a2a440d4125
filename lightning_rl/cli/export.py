"""`lightning-rl export`: writes a policy as a file that runs without this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_rl.cli.parser import TRUST, Parser, whole_number

__all__ = ["export"]


def export(arguments: Sequence[str]) -> int:
    """Export a policy to ONNX, torch.export or TorchScript: export RUN_DIR [--format onnx] [--best] [--out DIR]."""
    parser = Parser(prog="lightning-rl export", description=export.__doc__)
    parser.add_argument("checkpoint", type=Path, help="a .ckpt file, or a run directory, which means its last.ckpt")
    parser.add_argument("--format", default="onnx", help="onnx (default), torch.export, or torchscript (deprecated)")
    parser.add_argument("--best", action="store_true", help="use the best evaluation's checkpoint instead of last.ckpt")
    parser.add_argument("--out", type=Path, help="output directory; default: RUN_DIR/export")
    parser.add_argument("--policy-id", help="with several policies: id of the one to export; default: all")
    parser.add_argument("--env", help="environment to check the file in: id, import path or preset; default: the run's")
    parser.add_argument("--seed", type=whole_number, default=0, help="seed of the episodes that the file is checked on")
    parser.add_argument("--trust", **TRUST)
    options = vars(parser.options(arguments, help="print one JSON object per policy"))
    from lightning_rl.runs.export import export as export_checkpoint

    for result in export_checkpoint(**options):
        parser.show(result, summary(result))
    if options["format"] == "torchscript":
        print("TorchScript is deprecated by PyTorch; for new programs take --format torch.export or onnx")
    return 0


def summary(result: Mapping[str, Any]) -> str:
    """What was written of one policy, and what the check found."""
    if "refused" in result:
        return f"{result['policy_id']}: not exported: {result['refused']}"
    file, check = Path(result["directory"], result["file"]), result["check"]
    name = result["algorithm"] if result["policy_id"] is None else f"{result['policy_id']} ({result['algorithm']})"
    inputs = ", ".join(f"{port['name']} {port['dtype']}{port['shape']}" for port in result["inputs"]).replace("'", "")
    return (
        f"{name} → {file} ({file.stat().st_size / 1024:.0f} KiB) and policy.json\n"
        f"  reads {inputs}\n"
        f"  checked against the policy on {check['rows']} {check['source']}: largest difference "
        f"{check['largest_difference']:.2g} (at most {check['tolerance']:g})"
    )
