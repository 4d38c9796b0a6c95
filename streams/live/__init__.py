"""The live runtime on Kafka: lanes with their state in a changelog, one transaction a batch, ticks, a watchdog."""
