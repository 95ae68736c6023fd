"""`nacre help`: sections of the pages in `compiler/docs`, by operator, construct, diagnostic code, pass or target."""
