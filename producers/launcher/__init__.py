"""The job launcher: runs a command as a rank of a job, tells what becomes of it, and never stands in its way."""
