"""The node agent: what runs on every node and reports its health, and fails closed where it cannot know."""
