"""How often a slow rank is named, and how often a wrong one: simulated gangs, recorded jobs, real processes."""
