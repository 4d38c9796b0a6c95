"""What is looked at on a node: each probe runs in a process of its own, and may hang or die there."""
