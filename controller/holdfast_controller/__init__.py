"""The controller: schedules gangs of workers over hosts and decides what happens when one fails."""
