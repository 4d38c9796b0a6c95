"""Events over HTTP, for those who cannot or should not reach Kafka: taken from whoever may speak, and never kept."""
