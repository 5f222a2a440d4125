"""The files of a run's directory beside checkpoints and curves: configuration, status, lock; and lists of such runs.

Nothing here imports torch or Lightning, so that `lightning-rl list runs` answers at once.
"""
