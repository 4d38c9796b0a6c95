"""Objectives, indicators, the report and the answers for people."""
