"""Everything that imports Ray: sessions, actors, placement, transport, and ranks by Ray Train."""
