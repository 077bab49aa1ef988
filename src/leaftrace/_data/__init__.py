"""Tables, arrays and files that users pass in and get back; errors and progress."""
