"""The report, the explorer and the command line: what people see."""
