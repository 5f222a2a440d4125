"""Files of a run directory: checkpoints, configuration, status, lock; and lists of runs.

Only `checkpoint_files` imports torch, and nothing Lightning, so that `lightning-rl list runs` is fast.
"""
