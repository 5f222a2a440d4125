"""The window of an environment that draws with pygame: its keys, its closing, and its title."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["PygameWindow"]

QUIT_KEYS = ("q", "\x1b")  # q and Escape


class PygameWindow:
    """What a viewer does to the window that an environment has opened; nothing where it draws by another library."""

    def read(self) -> str:
        """The next key that was pressed in the window, "q" if it was closed, or "" if nothing happened."""
        pygame = _pygame_with_window()
        if pygame is None:
            return ""
        for event in pygame.event.get((pygame.KEYDOWN, pygame.QUIT)):
            if event.type == pygame.QUIT or event.unicode in QUIT_KEYS:
                return "q"
            if event.unicode:  # not Shift and the like
                return event.unicode
        return ""

    def draw(self, rendered: Any, status: str) -> None:
        """Write a line into the title; the environment has drawn itself."""
        if (pygame := _pygame_with_window()) is not None:
            pygame.display.set_caption(status)


def _pygame_with_window() -> Any:
    """The module, if something in this process has opened a window with it."""
    pygame = sys.modules.get("pygame")
    return pygame if pygame is not None and pygame.display.get_surface() is not None else None
