"""Shows what a policy does: a frame after each step, in a window, a terminal, a video file or a GIF."""
