"""What carries remediation commands out."""
