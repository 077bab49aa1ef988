"""Tables, arrays and files as users bring them and get them back; errors and progress."""
