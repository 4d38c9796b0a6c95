"""A simulated fleet: machines, jobs and what goes wrong, with the true cause of every failure."""
