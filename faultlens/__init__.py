"""What all parts share: events, topics, codec, catalogue and signatures, settings, store client."""
