"""Tests that make a node work and know the answer: memory, arithmetic, links, disks."""
