"""Measures whole runs against the same work in plain torch, on this machine: `lightning-rl benchmark`."""
