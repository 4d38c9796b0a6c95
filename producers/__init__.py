"""Where events come from: importers, the simulated fleet, agents, launchers and bridges."""
