"""Files of a run directory beside checkpoints and curves: configuration, status, lock; and lists of runs.

Nothing here imports torch or Lightning, so that `lightning-rl list runs` is fast.
"""
