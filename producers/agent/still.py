"""Imported last by the server that probes are forked from: what it has imported is never looked at by the collector.

A collection writes into every object that it looks at, and what a fork writes it no longer shares with its server.
"""

from __future__ import annotations

import gc

gc.disable()
gc.freeze()
