"""What the host's kernel and NVIDIA's driver print, turned into faults of the contract."""
