"""The devices there are, which ops they have no kernel for, and what a call takes on them."""
