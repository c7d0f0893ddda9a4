"""Programs built on Headway, from one that fits a screen to a fleet of real processes."""
