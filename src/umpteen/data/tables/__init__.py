"""Tables in files: which columns are meant, how a file is written, rows in and rows out."""
