"""What a cloud provider says of its machines: maintenance, the end of spot capacity, failed checks."""
