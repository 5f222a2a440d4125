"""The processes of one run that learns on several devices: who starts them, how they meet, and how they part."""
