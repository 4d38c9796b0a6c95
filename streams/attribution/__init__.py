"""Attribution: one pure function from an attempt and its evidence to a verdict."""
