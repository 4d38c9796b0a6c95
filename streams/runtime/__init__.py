"""What runs a processor: the task with its atomic commit, the log and the state under it."""
