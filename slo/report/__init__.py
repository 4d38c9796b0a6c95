"""The weekly report: what the fleet promised, what it kept, whose fault the rest was, and what that cost."""
