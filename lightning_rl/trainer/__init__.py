"""Lightning's Trainer as a policy's loop needs it, and what it cannot do here."""
