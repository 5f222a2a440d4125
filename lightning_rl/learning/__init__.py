"""How a policy learns: the iteration, the optimizer, extra losses, gradients of other copies, and metrics."""
