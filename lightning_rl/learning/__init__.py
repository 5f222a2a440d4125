"""How a policy learns: the iteration, the optimiser, extra losses, gradients of other copies, and metrics."""
