"""Jobs on a board: their folders, the agent there and its other end here."""
