"""What Slurm says in its own words, turned into the contract's events."""
