"""How a policy learns: the iteration frame, the optimiser, extra losses, gradients that travel, and metrics."""
