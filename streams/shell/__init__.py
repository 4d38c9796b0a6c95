"""What of Faust is replaced: with `streams/app.py` the only modules that know it."""
