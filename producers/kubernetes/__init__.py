"""What a Kubernetes cluster knows of jobs, nodes and devices, as events."""
