"""The processors: pure state machines that turn events into verdicts, states, ledgers and objectives."""
