"""What people see of a report: the page, the terminal, a trace file, the differences between two reports."""
