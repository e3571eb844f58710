"""The measurements: functions that run wherever they are called, as a hop would run there."""
