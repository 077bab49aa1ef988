"""leaftrace in other tools; each module needs the package of its name."""
